"""Reads a pod's requests from its limits, the names of its templates and its claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from divvy.model.claim_names import (
    CORES,
    GPU_CLASS,
    MEMORY,
    MIG_CLASS,
    SHARE_CLASS,
    SHARES,
    SizedRequest,
    mig_class,
    parse_template_name,
    share_class,
)
from divvy.model.nvidia_claims import TYPES
from divvy.model.problems import printable
from divvy.model.quantities import parse_count, parse_quantity
from divvy.model.resource_names import SHARED_SUFFIX, VENDOR, gpu_resource
from divvy.model.stack import Names

Kind = Literal["gpu", "share", "mig"]
_MIG_PREFIX = f"{VENDOR}/mig-"


@dataclass(frozen=True)
class Request:
    """So many devices of a kind on one node.

    ``memory_mib`` and ``cores`` are of each device, None for the default of a share; ``percent``
    is of each GPU's memory. The rest is of a claim that somebody wrote by hand: ``turns`` is how
    many shares of a device, ``unknown`` are capacities that no device of ours has, and
    ``nvidias_class`` is the class where it is one of NVIDIA's. Not looked at are ``selectors`` and
    what ``unchecked`` names, which leave fewer devices, and what ``unread`` names, with which it
    may get others.
    """

    count: int
    kind: Kind
    memory_mib: int | None = None
    percent: int | None = None
    cores: int | None = None
    profile: str | None = None
    tenant: str | None = None
    use_types: tuple[str, ...] = ()
    no_types: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()
    turns: int | None = None
    unknown: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    nvidias_class: str = ""

    @property
    def device_class(self) -> str:
        """Return the class of the devices."""
        if self.nvidias_class:
            return self.nvidias_class
        if self.kind == "mig":
            return MIG_CLASS if self.profile is None else mig_class(self.profile)
        return GPU_CLASS if self.kind == "gpu" else share_class(self.tenant)

    @property
    def words(self) -> str:
        """Describe what is asked for: ``2 shares of 3,000 MiB and 30 % of a GPU's time``."""
        return f"{self._what}{self._where}"

    @property
    def _what(self) -> str:
        many = "" if self.count == 1 else "s"
        if self.kind == "gpu":
            return f"{self.count} whole GPU{many}"
        if self.kind == "mig":
            return f"{self.count} MIG device{many} {self.profile or 'of any profile'}"
        sizes = []
        if self.percent is not None:
            sizes.append(f"{self.percent} % of a GPU's memory")
        elif self.memory_mib is not None:
            sizes.append(f"{self.memory_mib:,} MiB")
        if self.cores is not None:
            sizes.append(f"{self.cores} % of a GPU's time")
        return f"{self.count} share{many} of {' and '.join(sizes) or 'the default size'}"

    @property
    def _where(self) -> str:
        parts = [f" for tenant {self.tenant}"] if self.tenant else []
        parts += [f" on {' or '.join(self.use_types)}"] if self.use_types else []
        parts += [f" not on {' or '.join(self.no_types)}"] if self.no_types else []
        return "".join(parts)


def requests_of(
    pod: Mapping[str, Any], claims: Iterable[Mapping[str, Any]], names: Names
) -> tuple[Request, ...]:
    """Return what a pod asks of Divvy's devices; ``claims`` are those that exist for it."""
    spec = pod["spec"]
    requests: list[Request] = []
    unread = {claim["metadata"]["name"]: claim for claim in claims}
    for entry in spec.get("resourceClaims") or ():
        sized = parse_template_name(entry.get("resourceClaimTemplateName") or "")
        if sized is not None:
            requests.append(_of_template(sized))
            unread.pop(_claim_name(pod, entry["name"]), None)
    for claim in unread.values():
        if (
            claim["metadata"]
            .get("annotations", {})
            .get("resource.kubernetes.io/extended-resource-claim")
        ):
            continue
        requests += _of_claim(claim["spec"], names)
    requests += _of_limits([*spec.get("containers", ()), *spec.get("initContainers", ())], names)
    return tuple(requests)


def _claim_name(pod: Mapping[str, Any], entry: str) -> str:
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return next(
        (status.get("resourceClaimName") or "" for status in statuses if status["name"] == entry),
        "",
    )


def _of_template(sized: SizedRequest) -> Request:
    """Return what a request by size asks for."""
    if sized.unit == "g":
        use, no = sized.use_types, sized.no_types
        return Request(sized.count, "gpu", use_types=use, no_types=no)
    whole = sized.unit == "p" and sized.amount == 100
    return Request(
        sized.count,
        "share",
        sized.amount if sized.unit == "m" else None,
        sized.amount if sized.unit == "p" else None,
        sized.cores or (100 if whole else 1),
        tenant=sized.tenant,
        use_types=sized.use_types,
        no_types=sized.no_types,
    )


def _of_claim(spec: Mapping[str, Any], names: Names) -> Iterator[Request]:
    devices = spec.get("devices") or {}
    unchecked = ("constraints",) if devices.get("constraints") else ()
    for device_request in devices.get("requests") or ():
        alternatives = device_request.get("firstAvailable") or ()
        exact = device_request.get("exactly") or next(iter(alternatives), None)
        if exact is None:
            continue
        request = _of_class(exact, names)
        if request is not None:
            unread = ("alternatives (firstAvailable)",) if len(alternatives) > 1 else ()
            yield replace(request, unchecked=unchecked, unread=(*unread, *_unread(exact)))


def names_of_own(spec: Mapping[str, Any], names: Names) -> Iterator[str]:
    """Yield the names of a claim's requests for classes that Divvy serves, as parameters have them.

    An alternative is ``request/alternative``.
    """
    for request in (spec.get("devices") or {}).get("requests") or ():
        name = str(request.get("name"))
        if (exact := request.get("exactly")) and _kind(str(exact["deviceClassName"]), names):
            yield name
        for alternative in request.get("firstAvailable") or ():
            if _kind(str(alternative["deviceClassName"]), names):
                yield f"{name}/{alternative.get('name')}"


def classes_of_others(spec: Mapping[str, Any], names: Names) -> Iterator[str]:
    """Yield in words what a claim asks for that is none of our classes."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        for exact in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if exact and _kind(str(exact["deviceClassName"]), names) is None:
                yield f"devices of the class {exact['deviceClassName']}"


def _unread(exact: Mapping[str, Any]) -> Iterator[str]:
    if exact.get("allocationMode") == "All":
        yield "all devices of a kind (allocationMode)"
    if exact.get("adminAccess"):
        yield "devices that others have (adminAccess)"
    if exact.get("tolerations"):
        yield "devices with taints (tolerations)"


def _of_class(exact: Mapping[str, Any], names: Names) -> Request | None:
    name = str(exact["deviceClassName"])
    kind = _kind(name, names)
    if kind is None:
        return None
    is_ours = name not in TYPES
    sizes = (exact.get("capacity") or {}).get("requests") or {}
    memory, cores, turns = (sizes.get(key) for key in (MEMORY, CORES, SHARES))
    return Request(
        int(exact.get("count") or 1),
        kind,
        memory_mib=None if memory is None else _rounded_up(memory, 1 << 20),
        cores=None if cores is None else _rounded_up(cores, 1),
        profile=_rest(name, MIG_CLASS) if kind == "mig" and is_ours else None,
        tenant=_rest(name, SHARE_CLASS) if kind == "share" else None,
        selectors=tuple(
            printable(" ".join(selector["cel"]["expression"].split()))
            for selector in exact.get("selectors") or ()
            if "cel" in selector
        ),
        turns=None if turns is None else _rounded_up(turns, 1),
        # Kubernetes 1.36 compares names as they are written: divvy.gpu/memory is not memory.
        unknown=tuple(sorted(sizes.keys() - {MEMORY, CORES, SHARES})),
        nvidias_class="" if is_ours else name,
    )


def _rest(name: str, prefix: str) -> str | None:
    return name.removeprefix(prefix).removeprefix("-") or None


def _kind(device_class: str, names: Names) -> Kind | None:
    """Return what a class that Divvy serves selects, None for one of others."""
    if device_class == GPU_CLASS:
        return "gpu"
    if device_class == MIG_CLASS or device_class.startswith(f"{MIG_CLASS}-"):
        return "mig"
    if device_class == SHARE_CLASS or device_class.startswith(f"{SHARE_CLASS}-"):
        return "share"
    return None if names.classes is None else cast(Kind | None, TYPES.get(device_class))


def _rounded_up(quantity: str, unit: int) -> int:
    """Return a request in units, at least one: the scheduler raises less to the least there is."""
    return max(1, -int(-parse_quantity(quantity) // unit))


def _of_limits(containers: Sequence[Mapping[str, Any]], names: Names) -> Iterator[Request]:
    for container in containers:
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource, quantity in limits.items():
            count = parse_count(quantity)
            if not count:
                continue
            if resource == names.gpu:
                yield Request(count, "gpu")
            elif resource == gpu_resource(shared=True):
                yield Request(count, "share")
            elif resource.startswith(_MIG_PREFIX) and not resource.endswith(SHARED_SUFFIX):
                yield Request(count, "mig", profile=resource.removeprefix(_MIG_PREFIX))
