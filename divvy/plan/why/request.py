"""What a pod asks for, read from its limits, the names of its templates and its claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from divvy.model.claim_names import (
    CORES,
    GPU_CLASS,
    MEMORY,
    SHARE_CLASS,
    SizedRequest,
    mig_class,
    parse_template_name,
)
from divvy.model.problems import printable
from divvy.model.quantities import parse_count, parse_quantity
from divvy.model.resource_names import SHARED_SUFFIX, VENDOR, gpu_resource
from divvy.model.stack import Names

_MIG_PREFIX = f"{VENDOR}/mig-"


@dataclass(frozen=True)
class Request:
    """So many devices of a kind on one node.

    ``memory_mib`` and ``cores`` are of each share, None for the default of the device; ``percent``
    is of each GPU's memory. ``selectors`` are conditions of a claim that somebody wrote by hand.
    """

    count: int
    kind: Literal["gpu", "share", "mig"]
    memory_mib: int | None = None
    percent: int | None = None
    cores: int | None = None
    profile: str | None = None
    tenant: str | None = None
    use_types: tuple[str, ...] = ()
    no_types: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Say what is asked for: ``2 shares of 3,000 MiB and 30 % of a GPU's time``."""
        return f"{self._what}{self._where}"

    @property
    def _what(self) -> str:
        many = "" if self.count == 1 else "s"
        if self.kind == "gpu":
            return f"{self.count} whole GPU{many}"
        if self.kind == "mig":
            return f"{self.count} MIG device{many} {self.profile}"
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
    found: list[Request] = []
    unread = {claim["metadata"]["name"]: claim for claim in claims}
    for entry in spec.get("resourceClaims") or ():
        sized = parse_template_name(entry.get("resourceClaimTemplateName") or "")
        if sized is not None:
            found.append(_of_template(sized))
            unread.pop(_claim_name(pod, entry["name"]), None)
    for claim in unread.values():
        if (
            claim["metadata"]
            .get("annotations", {})
            .get("resource.kubernetes.io/extended-resource-claim")
        ):
            continue
        found += _of_claim(claim["spec"])
    found += _of_limits([*spec.get("containers", ()), *spec.get("initContainers", ())], names)
    return tuple(found)


def _claim_name(pod: Mapping[str, Any], entry: str) -> str:
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return next(
        (one.get("resourceClaimName") or "" for one in statuses if one["name"] == entry), ""
    )


def _of_template(sized: SizedRequest) -> Request:
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


def _of_claim(spec: Mapping[str, Any]) -> Iterator[Request]:
    for one in spec.get("devices", {}).get("requests") or ():
        exact = one.get("exactly") or next(iter(one.get("firstAvailable") or ()), None)
        request = None if exact is None else _of_class(exact)
        if request is not None:
            yield request


def _of_class(exact: Mapping[str, Any]) -> Request | None:
    name = str(exact["deviceClassName"])
    sizes = (exact.get("capacity") or {}).get("requests") or {}
    selectors = tuple(
        printable(" ".join(one["cel"]["expression"].split()))
        for one in exact.get("selectors") or ()
        if "cel" in one
    )
    count = int(exact.get("count") or 1)
    plain = Request(count, "gpu", selectors=selectors)
    if name == GPU_CLASS:
        return plain
    if name.startswith(mig_class("")):
        return replace(plain, kind="mig", profile=name.removeprefix(mig_class("")))
    if name != SHARE_CLASS and not name.startswith(SHARE_CLASS + "-"):
        return None
    memory = sizes.get(MEMORY)
    cores = sizes.get(CORES)
    return replace(
        plain,
        kind="share",
        memory_mib=None if memory is None else -int(-parse_quantity(memory) // (1 << 20)),
        cores=None if cores is None else -int(-parse_quantity(cores) // 1),
        tenant=name.removeprefix(SHARE_CLASS).removeprefix("-") or None,
    )


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
