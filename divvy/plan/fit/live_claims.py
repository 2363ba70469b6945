"""The devices of a cluster's slices, and the claims that hold them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, product
from typing import Any

from divvy.model.api_names import CLAIMS_DRIVER, claims_pool
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
from divvy.model.claim_status import allocation_results, consumer_pods
from divvy.model.quantities import parse_quantity
from divvy.model.resource_names import gpu_resource, mig_resource
from divvy.model.stack import Names
from divvy.plan.fit.readable import UNREADABLE, Note, full_name, ignore, problem, readable
from divvy.plan.predict.claimable import BY_CLAIMS

_MIB = 1 << 20
# Effects with which a taint keeps new pods off; those that a later Kubernetes adds only inform.
_KEEP_OFF = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Holder:
    """A claim that holds a device: whose it is, and how much of a share it takes.

    ``pods`` are those that it is reserved for; none while it waits for them, or is being released.
    ``unknown``: its allocation cannot be read, and it may hold all of the device.
    """

    namespace: str
    claim: str
    pods: tuple[str, ...]
    memory_mib: int | None = None
    cores: int | None = None
    unknown: bool = False

    @property
    def words(self) -> str:
        """Return who holds and how much: ``team/train (3,000 MiB, 30 %)``."""
        names = ", ".join(f"{self.namespace}/{pod}" for pod in self.pods)
        who = names or f"claim {self.namespace}/{self.claim}"
        if self.unknown:
            return f"{who} (of what cannot be read)"
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
        return self._free(self.memory_mib, [holder.memory_mib for holder in self.holders])

    @property
    def free_cores(self) -> int:
        """Return the per cent of compute time that no share has."""
        return self._free(self.cores, [holder.cores for holder in self.holders])

    def _free(self, whole: int, held: Sequence[int | None]) -> int:
        """Return what is left of a size; whose claim does not say how much has all of it."""
        sizes = [size for size in held if size is not None]
        unknown = len(sizes) < len(held) or any(holder.unknown for holder in self.holders)
        return 0 if unknown else whole - sum(sizes)


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


Holdings = Mapping[tuple[str | None, str | None], tuple[Holder, ...]]
"""Who holds each device, by pool and device; None stands for any of them."""


def claimed_gpus(
    slices: Iterable[Mapping[str, Any]],
    claims: Iterable[Mapping[str, Any]],
    taint_rules: Iterable[Mapping[str, Any]] = (),
    *,
    unread: Iterable[str] = (),
    note: Note = ignore,
) -> tuple[ClaimedGpu, ...]:
    """Read the GPUs of Divvy's slices (newest generation of each pool), by node and index.

    ``taint_rules`` are the cluster's DeviceTaintRules, ``unread`` the names of claims that the
    client could not read. What cannot be read is noted: a device is left out, and what its claims
    hold may be anything of its pool; so may be what a claim holds that cannot be read.
    """
    rules = _taints_by_place(taint_rules, note)
    held = holders_by_device(claims, unread=unread, note=note)
    devices: dict[tuple[str, str], list[tuple[Mapping[str, Any], LiveDevice]]] = {}
    counters: dict[tuple[str, str], dict[str, int]] = {}
    unknown_nodes: set[str] = set()
    for resource_slice in _current(slices, note):
        node, pool = resource_slice["nodeName"], resource_slice["pool"]["name"]
        for counter_set in _list(resource_slice, "sharedCounters", f"pool {pool}", note):
            try:
                counters[(node, counter_set["name"])] = _counters(counter_set)
            except UNREADABLE as error:
                note(f"counters of pool {pool} cannot be read: {problem(error)}")
        for raw in _list(resource_slice, "devices", f"pool {pool}", note):
            name = raw.get("name") if isinstance(raw, dict) else None
            try:
                attributes = {key: _value(value) for key, value in raw["attributes"].items()}
                places = product((None, pool), (None, name))
                of_rules = chain(*(rules.get(place, ()) for place in places))
                taints = (*(raw.get("taints") or ()), *of_rules)
                device = _device(raw, attributes, taints, holders_of(held, pool, name))
                int(str(attributes.get(INDEX, 0)))
                key = (node, str(attributes[UUID]))
            except UNREADABLE as error:
                note(f"device {name} of pool {pool} cannot be read: {problem(error)}")
                if holders_of(held, pool, name if isinstance(name, str) else None):
                    unknown_nodes.add(node)
                continue
            devices.setdefault(key, []).append((attributes, device))
    gpus = [
        _gpu(node, uuid, listed, {} if node in unknown_nodes else counters)
        for (node, uuid), listed in devices.items()
    ]
    return tuple(sorted(gpus, key=lambda gpu: (gpu.node, gpu.index)))


def holders_of(held: Holdings, pool: str, device: str | None) -> tuple[Holder, ...]:
    """Return who holds a device, or may hold it."""
    places = dict.fromkeys(((pool, device), (pool, None), (None, None)))
    return tuple(chain.from_iterable(held.get(place, ()) for place in places))


def _list(obj: Mapping[str, Any], key: str, where: str, note: Note) -> Sequence[Any]:
    value = obj.get(key) or ()
    if isinstance(value, (list, tuple)):
        return value
    note(f"{key} of {where} cannot be read: it is no list")
    return ()


def _counters(counter_set: Mapping[str, Any]) -> dict[str, int]:
    return {
        name: int(parse_quantity(value["value"])) for name, value in counter_set["counters"].items()
    }


def pods_with_claims(
    claims: Iterable[Mapping[str, Any]], *, unread: Iterable[str] = (), note: Note = ignore
) -> tuple[str, ...]:
    """Return the pods that hold a device of Divvy's, by namespace/name.

    A claim that cannot be read may hold one, and stands for itself where it names no pods.
    """
    held = holders_by_device(claims, admins=True, unread=unread, note=note)
    pods: set[str] = set()
    for holder in chain.from_iterable(held.values()):
        pods.update(f"{holder.namespace}/{pod}" for pod in holder.pods)
        if holder.unknown and not holder.pods:
            pods.add(holder.words)
    return tuple(sorted(pods))


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


def _current(slices: Iterable[Mapping[str, Any]], note: Note) -> list[Mapping[str, Any]]:
    specs = [spec for spec in readable(slices, _own_spec, note) if spec is not None]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return [spec for spec in specs if spec["pool"]["generation"] == newest[spec["pool"]["name"]]]


def _own_spec(resource_slice: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the specification of a slice of Divvy's devices, None of another."""
    spec: Mapping[str, Any] = resource_slice["spec"]
    if spec.get("driver") != CLAIMS_DRIVER:
        return None
    node, pool = spec.get("nodeName") or "", spec["pool"]
    if not isinstance(node, str) or not isinstance(pool["generation"], int):
        raise TypeError("its node or generation is of another type")
    # A pool belongs to one node: the slice that another node publishes in it does not count.
    return {**spec, "nodeName": node} if pool["name"] == claims_pool(node) else None


def holders_by_device(
    claims: Iterable[Mapping[str, Any]],
    driver: str = CLAIMS_DRIVER,
    *,
    admins: bool = False,
    unread: Iterable[str] = (),
    note: Note = ignore,
) -> Holdings:
    """Return who holds each of a driver's devices.

    With ``admins`` also whose claims have admin access, which takes nothing of a device. ``unread``
    are claims, by name, of which nothing could be read.
    """
    held: dict[tuple[str | None, str | None], tuple[Holder, ...]] = {}
    for claim in claims:
        for place, holder in _holdings(claim, driver, admins, note):
            held[place] = (*held.get(place, ()), holder)
    for name in unread:
        namespace, _, claim_name = name.rpartition("/")
        nobody = Holder(namespace, claim_name, (), unknown=True)
        held[None, None] = (*held.get((None, None), ()), nobody)
    return held


def _holdings(
    claim: Mapping[str, Any], driver: str, admins: bool, note: Note
) -> Iterator[tuple[tuple[str | None, str | None], Holder]]:
    """Yield what a claim holds of a driver's devices, and what it may hold."""
    meta = claim["metadata"]
    namespace, name = str(meta.get("namespace") or ""), str(meta.get("name") or "")
    unknown = Holder(namespace, name, (), unknown=True)
    try:
        results = allocation_results(claim)
        pods = tuple(str(pod) for pod, _ in consumer_pods(claim))
    except UNREADABLE as error:
        note(f"claim {full_name(claim)} cannot be read, and may hold any device: {problem(error)}")
        yield (None, None), unknown
        return
    for result in results:
        pool = device = None
        try:
            if result["driver"] != driver or (result.get("adminAccess") and not admins):
                continue
            pool = _name(result["pool"])
            device = _name(result["device"])
            consumed = unqualified(result.get("consumedCapacity") or {})
            memory_mib = _mib(consumed[MEMORY]) if MEMORY in consumed else None
            cores = int(parse_quantity(consumed[CORES])) if CORES in consumed else None
        except UNREADABLE as error:
            note(f"claim {full_name(claim)} cannot be read: {problem(error)}")
            yield (pool, device), replace(unknown, pods=pods)
        else:
            yield (pool, device), Holder(namespace, name, pods, memory_mib, cores)


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a name of a pool or device is no text")
    return value


def _taints_by_place(
    rules: Iterable[Mapping[str, Any]], note: Note
) -> Mapping[tuple[str | None, str | None], Sequence[Mapping[str, Any]]]:
    """Return the taints that rules give devices of Divvy's, by pool and device, None for all.

    A rule without a selector has none.
    """
    taints: dict[tuple[str | None, str | None], list[Mapping[str, Any]]] = {}
    for rule in readable(rules, _rule, note):
        if rule is not None:
            place, taint = rule
            taints.setdefault(place, []).append(taint)
    return taints


def _rule(
    rule: Mapping[str, Any],
) -> tuple[tuple[str | None, str | None], Mapping[str, Any]] | None:
    """Return which devices of Divvy's a rule is for, and its taint; None if for none."""
    selector, taint = rule["spec"].get("deviceSelector"), rule["spec"]["taint"]
    if selector is None or selector.get("driver", CLAIMS_DRIVER) != CLAIMS_DRIVER:
        return None
    if not {"key", "effect"} <= taint.keys():
        raise ValueError("its taint has no key or effect")
    return (selector.get("pool"), selector.get("device")), taint


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


def _value(attribute: Mapping[str, Any]) -> object:
    """Return an attribute's value, whatever its type."""
    return next(iter(attribute.values()))


def _mib(quantity: str) -> int:
    return int(Fraction(parse_quantity(quantity)) // _MIB)
