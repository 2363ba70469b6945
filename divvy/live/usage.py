"""``Usage``: the holders of a cluster's GPUs now, and how much is in use."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

Order = Literal["node", "memory", "utilisation", "age"]


@dataclass(frozen=True)
class UsingPod:
    """A pod that holds a device or asks for one.

    ``age_seconds`` is None if the pod itself was not read; ``requests`` is what it asks for, by
    resource, or in words where it asks by a claim.
    """

    namespace: str
    name: str
    state: str = ""
    reason: str = ""
    created: str | None = None
    age_seconds: float | None = None
    requests: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Holding:
    """One device and the container that holds it; sizes in MiB, None if unknown.

    ``device`` is what it is (``whole``, ``1g.5gb``, ``replica``, ``share``); ``claim`` is the claim
    that holds it, empty for devices of a device plugin; ``over_mib`` is memory beyond the limit,
    ``utilisation`` per cent of the GPU's time that the container takes.
    """

    device: str
    resource: str
    pod: UsingPod
    container: str
    used_mib: int | None = None
    limit_mib: int | None = None
    cores: int | None = None
    over_mib: int = 0
    claim: str = ""
    utilisation: int | None = None

    @property
    def holder(self) -> str:
        """Return who holds: the pod, or the claim that no pod uses yet."""
        return self.pod.full_name if self.pod.name else f"claim {self.pod.namespace}/{self.claim}"


@dataclass(frozen=True)
class UsedGpu:
    """One GPU: sizes in MiB, utilisation in per cent, None if unknown.

    ``free`` is how many devices of each kind are free, if each is known by itself.
    """

    index: int
    uuid: str
    product: str = ""
    state: str = ""
    reason: str = ""
    total_mib: int | None = None
    used_mib: int | None = None
    utilisation: int | None = None
    holdings: tuple[Holding, ...] = ()
    free: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ResourceUse:
    """How many devices of a resource a node has, and how many its pods ask for.

    ``requested`` is None if not all pods could be read.
    """

    resource: str
    allocatable: int
    requested: int | None


@dataclass(frozen=True)
class UsedNode:
    """A node with GPUs: ``gpu_count`` of them, however many are looked at.

    ``unknown`` says why use and holders are not known, empty if its agent has told. ``unplaced``
    are pods on the node of which it is not known which GPU they hold, or that hold none yet.
    """

    name: str
    pool: str | None = None
    profile: str | None = None
    product: str = ""
    state: str = ""
    reason: str = ""
    simulated: bool = False
    gpu_count: int = 0
    unknown: str = ""
    gpus: tuple[UsedGpu, ...] = ()
    resources: tuple[ResourceUse, ...] = ()
    unplaced: tuple[UsingPod, ...] = ()

    @property
    def holdings(self) -> tuple[Holding, ...]:
        """Return what is held on all GPUs of the node."""
        return tuple(holding for gpu in self.gpus for holding in gpu.holdings)


@dataclass(frozen=True)
class Usage:
    """The GPUs of a cluster at one time (``read``, RFC 3339).

    ``waiting`` are pods that no node has; ``notes`` are what this user may not see, and why.
    """

    cluster: str
    read: str
    nodes: tuple[UsedNode, ...]
    waiting: tuple[UsingPod, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sums:
    """Sizes in MiB; ``unknown`` is how many of the GPUs do not tell their memory."""

    gpus: int
    used_mib: int
    total_mib: int
    utilisation: int | None
    pods: int
    unknown: int


def sums(nodes: Iterable[UsedNode]) -> Sums:
    """Add up the GPUs of some nodes; utilisation is the mean of those that tell it."""
    listed = tuple(nodes)
    gpus = [gpu for node in listed for gpu in node.gpus]
    measured = [gpu for gpu in gpus if gpu.used_mib is not None and gpu.total_mib is not None]
    busy = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
    pods = {
        holding.pod.full_name for node in listed for holding in node.holdings if holding.pod.name
    }
    pods |= {pod.full_name for node in listed for pod in node.unplaced}
    return Sums(
        gpus=len(gpus),
        used_mib=sum(gpu.used_mib or 0 for gpu in measured),
        total_mib=sum(gpu.total_mib or 0 for gpu in measured),
        utilisation=round(sum(busy) / len(busy)) if busy else None,
        pods=len(pods),
        unknown=len(gpus) - len(measured),
    )


def selected(
    usage: Usage, node: str | None = None, namespace: str | None = None, pod: str | None = None
) -> Usage:
    """Keep one node, and what pods of a namespace or of a name hold or ask for."""
    nodes = [used_node for used_node in usage.nodes if node is None or used_node.name == node]
    waiting = usage.waiting if node is None else ()
    if namespace is None and pod is None:
        return replace(usage, nodes=tuple(nodes), waiting=waiting)

    def is_meant(holder: UsingPod) -> bool:
        return namespace in (None, holder.namespace) and pod in (
            None,
            holder.name,
            holder.full_name,
        )

    nodes = [_held_by(used_node, is_meant) for used_node in nodes]
    return replace(
        usage,
        nodes=tuple(used_node for used_node in nodes if used_node.gpus or used_node.unplaced),
        waiting=tuple(pending for pending in waiting if is_meant(pending)),
    )


def matching(usage: Usage, text: str) -> Usage:
    """Keep nodes whose name has a text, and of the others what pods with it in their name hold."""
    if not text:
        return usage
    nodes = [
        node if text in node.name else _held_by(node, lambda pod: text in pod.full_name)
        for node in usage.nodes
    ]
    return replace(
        usage,
        nodes=tuple(node for node in nodes if text in node.name or node.gpus or node.unplaced),
        waiting=tuple(pod for pod in usage.waiting if text in pod.full_name),
    )


def ordered(usage: Usage, order: Order) -> Usage:
    """Sort nodes, and on each its GPUs: by name, or the most used or the longest held first."""
    if order == "node":
        return usage
    nodes = (
        replace(node, gpus=tuple(sorted(node.gpus, key=lambda gpu: -_rank((gpu,), order))))
        for node in usage.nodes
    )
    return replace(usage, nodes=tuple(sorted(nodes, key=lambda node: -_node_rank(node, order))))


def _held_by(node: UsedNode, is_meant: Callable[[UsingPod], bool]) -> UsedNode:
    gpus = (
        replace(
            gpu,
            holdings=tuple(holding for holding in gpu.holdings if is_meant(holding.pod)),
            free={},
        )
        for gpu in node.gpus
    )
    return replace(
        node,
        gpus=tuple(gpu for gpu in gpus if gpu.holdings),
        unplaced=tuple(pod for pod in node.unplaced if is_meant(pod)),
    )


def _node_rank(node: UsedNode, order: Order) -> float:
    ages = [pod.age_seconds for pod in node.unplaced if pod.age_seconds is not None]
    own = max(ages, default=-1.0) if order == "age" else -1.0
    return max(own, _rank(node.gpus, order))


def _rank(gpus: tuple[UsedGpu, ...], order: Order) -> float:
    """Return what some GPUs are sorted by, -1 if unknown."""
    if order == "memory":
        full = [gpu for gpu in gpus if gpu.used_mib is not None and gpu.total_mib]
        total = sum(gpu.total_mib or 0 for gpu in full)
        return sum(gpu.used_mib or 0 for gpu in full) / total if total else -1.0
    if order == "utilisation":
        busy = [gpu.utilisation for gpu in gpus if gpu.utilisation is not None]
        return sum(busy) / len(busy) if busy else -1.0
    ages = (holding.pod.age_seconds for gpu in gpus for holding in gpu.holdings)
    return max((age for age in ages if age is not None), default=-1.0)
