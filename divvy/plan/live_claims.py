"""What pods claim now: the devices of the cluster's slices and who holds them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, product
from operator import is_
from typing import Any

from divvy.model.claim_names import (
    CORES,
    INDEX,
    KIND,
    MEMORY,
    PRODUCT,
    PROFILE,
    SHARES,
    TENANT,
    TYPE,
    UUID,
    WHOLE,
    unqualified,
)
from divvy.model.contract import CLAIMS_DRIVER, claims_pool
from divvy.model.quantities import parse_quantity
from divvy.model.resource_names import gpu_resource, mig_resource
from divvy.model.stack import Names
from divvy.plan.claimable import BY_CLAIMS

_MIB = 1 << 20
# Effects with which a taint keeps new pods off; those that a later Kubernetes adds only inform.
_KEEP_OFF = ("NoSchedule", "NoExecute")


class UnreadableClaims(Exception):
    """A slice or claim of Divvy's devices that Divvy did not write; the text names it."""


@dataclass(frozen=True)
class Holder:
    """A claim that holds a device: whose it is, and how much of a share it takes.

    ``pods`` are those that it is reserved for; none while it waits for them, or is being released.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...]
    memory_mib: int | None = None
    cores: int | None = None

    @property
    def words(self) -> str:
        """Return who holds and how much: ``team/train (3,000 MiB, 30 %)``."""
        names = ", ".join(f"{self.namespace}/{pod}" for pod in self.pods)
        who = names or f"claim {self.namespace}/{self.claim}"
        if self.memory_mib is None:
            return who
        cores = "" if self.cores is None else f", {self.cores} %"
        return f"{who} ({self.memory_mib:,} MiB{cores})"


@dataclass(frozen=True)
class LiveDevice:
    """One device of a slice, and the claims that hold it.

    Of a share: sizes are rounded up to ``step_mib``; ``default_mib`` and ``default_cores`` are what
    a claim without a size takes, None for all of it.
    """

    name: str
    kind: str
    whole: bool
    tenant: str | None
    profile: str | None
    memory_mib: int
    cores: int
    most: int
    consumes: Mapping[str, int]
    taints: tuple[str, ...]
    holders: tuple[Holder, ...] = ()
    step_mib: int = 1
    default_mib: int | None = None
    default_cores: int | None = None

    @property
    def free_mib(self) -> int:
        """Return the memory that no share has."""
        return self.memory_mib - sum(holder.memory_mib or 0 for holder in self.holders)

    @property
    def free_cores(self) -> int:
        """Return the per cent of compute time that no share has."""
        return self.cores - sum(holder.cores or 0 for holder in self.holders)


@dataclass(frozen=True)
class ClaimedGpu:
    """One GPU that is served by claims: its devices and what of its counters is free."""

    node: str
    index: int
    uuid: str
    product: str
    type: str
    devices: tuple[LiveDevice, ...]
    free: Mapping[str, int]

    @property
    def name(self) -> str:
        """Return the GPU as a person finds it: ``gpu-a100 GPU 0``."""
        return f"{self.node} GPU {self.index}"

    @property
    def holders(self) -> tuple[tuple[LiveDevice, Holder], ...]:
        """Return who holds something of the GPU, with the device."""
        return tuple((device, holder) for device in self.devices for holder in device.holders)


def claimed_gpus(
    slices: Iterable[Mapping[str, Any]],
    claims: Iterable[Mapping[str, Any]],
    taint_rules: Iterable[Mapping[str, Any]] = (),
) -> tuple[ClaimedGpu, ...]:
    """Read the GPUs of Divvy's slices (newest generation of each pool), by node and index.

    ``taint_rules`` are the cluster's DeviceTaintRules. Raises UnreadableClaims.
    """
    rules = _taints_by_place(rule["spec"] for rule in taint_rules)
    held = holders_by_device(claims)
    devices: dict[tuple[str, str], list[tuple[Mapping[str, Any], LiveDevice]]] = {}
    counters: dict[tuple[str, str], dict[str, int]] = {}
    for resource_slice in _current(slices):
        node, pool = str(resource_slice.get("nodeName", "")), resource_slice["pool"]["name"]
        with _reading(f"a ResourceSlice of pool {pool}"):
            for counter_set in resource_slice.get("sharedCounters", ()):
                counters[(node, counter_set["name"])] = {
                    name: int(parse_quantity(value["value"]))
                    for name, value in counter_set["counters"].items()
                }
        for raw in resource_slice.get("devices", ()):
            with _reading(f"device {raw['name']} of pool {pool}"):
                attributes = {key: _value(value) for key, value in raw["attributes"].items()}
                places = product((None, pool), (None, raw["name"]))
                of_rules = chain(*(rules.get(place, ()) for place in places))
                taints = (*(raw.get("taints") or ()), *of_rules)
                device = _device(raw, attributes, taints, held.get((pool, raw["name"]), ()))
                key = (node, str(attributes[UUID]))
            devices.setdefault(key, []).append((attributes, device))
    gpus = [_gpu(node, uuid, listed, counters) for (node, uuid), listed in devices.items()]
    return tuple(sorted(gpus, key=lambda gpu: (gpu.node, gpu.index)))


def without_claims(gpu: ClaimedGpu, claims: Collection[tuple[str, str]]) -> ClaimedGpu:
    """Return a GPU of which some claims, by namespace and name, no longer hold anything."""
    free, devices = dict(gpu.free), []
    for device in gpu.devices:
        holders = tuple(
            holder for holder in device.holders if (holder.namespace, holder.claim) not in claims
        )
        if len(holders) == len(device.holders):
            devices.append(device)
            continue
        if not holders:
            for name, number in device.consumes.items():
                free[name] = free.get(name, 0) + number
        devices.append(replace(device, holders=holders))
    if all(map(is_, devices, gpu.devices)):
        return gpu
    return replace(gpu, devices=tuple(devices), free=free)


def pods_with_claims(claims: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the pods that hold a device of Divvy's, by namespace/name; raises UnreadableClaims."""
    held = holders_by_device(claims, admins=True)
    holders = (holder for group in held.values() for holder in group)
    return tuple(sorted({f"{holder.namespace}/{pod}" for holder in holders for pod in holder.pods}))


def offered_kinds(gpus: Iterable[ClaimedGpu], names: Names) -> Mapping[str, int]:
    """Return how many GPUs offer each kind of device to new claims, by the plan's names."""
    kinds: Counter[str] = Counter()
    for gpu in gpus:
        kinds.update({_kind_name(kind, whole, names) for kind, whole in _kinds(gpu)})
    return dict(sorted(kinds.items()))


def _kinds(gpu: ClaimedGpu) -> Iterator[tuple[LiveDevice, bool]]:
    for device in gpu.devices:
        # One that takes no new pods is not offered.
        if device.taints:
            continue
        if device.whole:
            yield device, True
        if device.kind != "gpu":
            yield device, False


def _kind_name(device: LiveDevice, whole: bool, names: Names) -> str:
    if whole:
        return names.gpu + BY_CLAIMS
    if device.profile is not None:
        return mig_resource(device.profile) + BY_CLAIMS
    return gpu_resource(shared=True) + BY_CLAIMS


def _current(slices: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    specs = [
        resource_slice["spec"]
        for resource_slice in slices
        if resource_slice["spec"].get("driver") == CLAIMS_DRIVER
    ]
    # A pool belongs to one node: the slice that another node publishes in it does not count.
    specs = [
        spec for spec in specs if spec["pool"]["name"] == claims_pool(str(spec.get("nodeName", "")))
    ]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]


def holders_by_device(
    claims: Iterable[Mapping[str, Any]], driver: str = CLAIMS_DRIVER, *, admins: bool = False
) -> dict[tuple[str, str], tuple[Holder, ...]]:
    """Return who holds each of a driver's devices, by pool and device; raises UnreadableClaims.

    With ``admins`` also whose claims have admin access, which takes nothing of a device.
    """
    held: dict[tuple[str, str], tuple[Holder, ...]] = {}
    for claim in claims:
        status = claim.get("status") or {}
        results = (status.get("allocation") or {}).get("devices", {}).get("results") or ()
        meta = claim["metadata"]
        pods = tuple(
            consumer["name"]
            for consumer in status.get("reservedFor") or ()
            if consumer.get("resource") == "pods"
        )
        for result in results:
            if result["driver"] != driver or (result.get("adminAccess") and not admins):
                continue
            consumed = unqualified(result.get("consumedCapacity") or {})
            with _reading(f"claim {meta['namespace']}/{meta['name']}"):
                holder = Holder(
                    meta["namespace"],
                    meta["name"],
                    pods,
                    _mib(consumed[MEMORY]) if MEMORY in consumed else None,
                    int(parse_quantity(consumed[CORES])) if CORES in consumed else None,
                )
            key = (result["pool"], result["device"])
            held[key] = (*held.get(key, ()), holder)
    return held


def _taints_by_place(
    rules: Iterable[Mapping[str, Any]],
) -> Mapping[tuple[str | None, str | None], Sequence[Mapping[str, Any]]]:
    """Return the taints that rules give devices of Divvy's, by pool and device, None for all.

    A rule without a selector has none.
    """
    taints: dict[tuple[str | None, str | None], list[Mapping[str, Any]]] = {}
    for rule in rules:
        selector = rule.get("deviceSelector")
        if selector is not None and selector.get("driver", CLAIMS_DRIVER) == CLAIMS_DRIVER:
            place = selector.get("pool"), selector.get("device")
            taints.setdefault(place, []).append(rule["taint"])
    return taints


def _device(
    raw: Mapping[str, Any],
    attributes: Mapping[str, Any],
    taints: Iterable[Mapping[str, Any]],
    holders: tuple[Holder, ...],
) -> LiveDevice:
    capacity = {name: value["value"] for name, value in (raw.get("capacity") or {}).items()}
    consumes = {
        name: int(parse_quantity(value["value"]))
        for consumption in raw.get("consumesCounters") or ()
        for name, value in consumption["counters"].items()
    }
    tenant, profile = attributes.get(TENANT), attributes.get(PROFILE)
    return LiveDevice(
        name=raw["name"],
        kind=str(attributes[KIND]),
        whole=bool(attributes.get(WHOLE)),
        tenant=None if tenant is None else str(tenant),
        profile=None if profile is None else str(profile),
        memory_mib=_mib(capacity.get(MEMORY, "0")),
        cores=int(parse_quantity(capacity.get(CORES, "0"))),
        most=int(parse_quantity(capacity.get(SHARES, "1"))),
        consumes=consumes,
        taints=tuple(
            f"{taint['key']}={taint['value']}" if taint.get("value") else taint["key"]
            for taint in taints
            if taint["effect"] in _KEEP_OFF
        ),
        holders=holders,
        **_policies(raw),
    )


def _policies(raw: Mapping[str, Any]) -> dict[str, int]:
    """Return step and defaults of a share's sizes, as far as it has any."""
    policies = {}
    capacity = raw.get("capacity") or {}
    memory, cores = (
        (capacity.get(name) or {}).get("requestPolicy") or {} for name in (MEMORY, CORES)
    )
    if (memory.get("validRange") or {}).get("step"):
        policies["step_mib"] = max(1, _mib(memory["validRange"]["step"]))
    if memory.get("default"):
        policies["default_mib"] = _mib(memory["default"])
    if cores.get("default"):
        policies["default_cores"] = int(parse_quantity(cores["default"]))
    return policies


def _gpu(
    node: str,
    uuid: str,
    listed: list[tuple[Mapping[str, Any], LiveDevice]],
    counters: Mapping[tuple[str, str], Mapping[str, int]],
) -> ClaimedGpu:
    attributes = listed[0][0]
    free = dict(counters.get((node, uuid.lower()), {}))
    for _, device in listed:
        # A device takes its counters once, however many claims share it.
        for name, number in (device.consumes if device.holders else {}).items():
            free[name] = free.get(name, 0) - number
    return ClaimedGpu(
        node,
        int(attributes.get(INDEX, 0)),
        uuid,
        str(attributes.get(PRODUCT, "")),
        str(attributes.get(TYPE, "")),
        tuple(device for _, device in listed),
        free,
    )


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Name in an error the object that is not as the agent writes it."""
    try:
        yield
    except KeyError as missing:
        raise UnreadableClaims(f"{what} cannot be read: it has no {missing.args[0]}") from None
    except (ValueError, TypeError, StopIteration) as error:
        raise UnreadableClaims(f"{what} cannot be read: {error}") from None


def _value(attribute: Mapping[str, Any]) -> object:
    """Return an attribute's value, whatever its type."""
    return next(iter(attribute.values()))


def _mib(quantity: str) -> int:
    return int(Fraction(parse_quantity(quantity)) // _MIB)
