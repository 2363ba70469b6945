"""One node, and what pods that were put there take of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from divvy.plan.fit.claim_allocation import Allocation, NodeDevices
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.nodes import FitNode
from divvy.plan.fit.pods import PodToFit
from divvy.plan.fit.shortage import (
    Shortage,
    ShortageKind,
    claim_holders,
    claim_shortage,
    requests_by_claim,
    shortage_of,
)

# What the scheduler counts of a pod that asks for none, where it compares nodes.
_CPU, _MEMORY = Fraction(1, 10), Fraction(200 * 1000 * 1000)


@dataclass(eq=False)
class NodeUsage:
    """A node, and what pods that were put there take of it beside those that it had.

    ``load`` is how loaded it is: the scheduler takes the node with the least cpu and memory.
    """

    node: FitNode
    devices: NodeDevices
    used: dict[str, Fraction]
    pods: int
    names: dict[str, list[str]] = field(default_factory=dict)
    load: float = 0.0

    def __post_init__(self) -> None:
        self.load = self._load()

    def take(self, pod: PodToFit, kinds: Mapping[str, Request]) -> tuple[str, ...] | Shortage:
        """Put a pod here and return what it gets, or leave everything and say what is missing."""
        by_claims = served_by_claims(self.node, pod, kinds)
        lacks = [shortage for shortage in self._shortages(pod, by_claims) if shortage is not None]
        claims = [*pod.claims, *requests_by_claim(pod.by_claim, by_claims, kinds)]
        if lacks:
            return min(lacks, key=lambda shortage: shortage.lack)
        allocations = self.devices.claim(claims)
        if allocations is None:
            holders = [*claim_holders(self.devices.gpus), *self.names.get("", ())]
            return claim_shortage(claims, self.devices, holders)
        self.pods += 1
        for name, number in pod.requests.items():
            self.used[name] = self.used.get(name, Fraction(0)) + number
            self.names.setdefault(name, []).append(pod.full_name)
        if allocations:
            self.names.setdefault("", []).append(pod.full_name)
        self.load = self._load()
        return _devices(pod, by_claims, allocations)

    def _load(self) -> float:
        if not self.node.is_live:
            return float(self.pods)
        load = 0.0
        for name, least in (("cpu", _CPU), ("memory", _MEMORY)):
            capacity = float(self.node.capacity.get(name, 0)) or 1.0
            load += max(float(self.used.get(name, 0)), float(least * self.pods)) / capacity
        return load

    def _shortages(self, pod: PodToFit, by_claims: set[str]) -> Iterator[Shortage | None]:
        if self.node.is_live and "pods" in self.node.capacity:
            yield shortage_of(
                "pods", Fraction(1), self.node.capacity["pods"], Fraction(self.pods), ()
            )
        for name, needed in sorted(pod.requests.items()):
            if name in by_claims or ("/" not in name and not self.node.is_live):
                continue
            holders = (*self.node.holders.get(name, ()), *self.names.get(name, ()))
            capacity = self.node.capacity.get(name, Fraction(0))
            used = self.used.get(name, Fraction(0))
            yield shortage_of(name, needed, capacity, used, holders if "/" in name else ())
            if name in self.node.single_replica_resources and pod.most.get(name, 0) > 1:
                words = f"gives a container 1 {name}, it asks for {pod.most[name]}"
                yield Shortage(ShortageKind.TOO_MUCH, f"{words} (failRequestsGreaterThanOne)")


def room_of(node: FitNode) -> NodeUsage:
    """Return a node before any pod is put there."""
    return NodeUsage(node, NodeDevices(node.gpus, node.spread), dict(node.used), node.pods)


def _devices(
    pod: PodToFit, by_claims: set[str], allocations: Sequence[Allocation]
) -> tuple[str, ...]:
    plain = [
        f"{name} ×{int(number):,}"
        for name, number in sorted(pod.requests.items())
        if "/" in name and name not in by_claims
    ]
    return (*plain, *(device.words for device in allocations))


class NodeGroup:
    """Nodes that are alike, opened one by one as pods need them."""

    def __init__(self, node: FitNode) -> None:
        self.node = node
        self._rooms: list[NodeUsage] = []
        self._spare: NodeUsage | None = None

    def open(self) -> list[NodeUsage]:
        """Return the nodes that pods were put on, and one more if there is one."""
        if self._spare is None and len(self._rooms) < self.node.count:
            self._spare = room_of(self.node)
        return self._rooms if self._spare is None else [*self._rooms, self._spare]

    def keep(self, room: NodeUsage) -> None:
        """Note that a pod was put on a node."""
        if room is self._spare:
            self._rooms.append(room)
            self._spare = None

    def all(self) -> list[NodeUsage]:
        """Return all nodes, opened."""
        while len(self._rooms) < self.node.count:
            self.keep(self.open()[-1])
        return self._rooms


def served_by_claims(node: FitNode, pod: PodToFit, kinds: Mapping[str, Request]) -> set[str]:
    """Return the resources of a pod's requests that a node can serve by claims alone."""
    return {
        name for name in pod.requests if name in kinds and node.gpus and not node.capacity.get(name)
    }
