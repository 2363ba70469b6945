"""Puts pods on nodes as the scheduler would, and says what is in the way of the others."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import CLASS_QUOTA, CLASS_RESOURCE
from divvy.model.nvidia_claims import GPU_CLASS as NVIDIAS_GPUS
from divvy.model.nvidia_claims import MIG_CLASS as NVIDIAS_MIG
from divvy.model.problems import nearest
from divvy.model.resource_names import gpu_resource, mig_resource
from divvy.plan.fit.claim_matching import is_kind
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.node_selection import UNSCHEDULABLE, repelled
from divvy.plan.fit.node_usage import NodeGroup, NodeUsage, room_of, served_by_claims
from divvy.plan.fit.nodes import FitNode
from divvy.plan.fit.pods import PodToFit
from divvy.plan.fit.shortage import Shortage, ShortageKind
from divvy.plan.fit.unread import Unread
from divvy.plan.quota.claim_quota import ClaimQuotas, Usage, usage_of_claim, usage_of_resources

_ALL_READ = Unread()
# What every pod of a DaemonSet tolerates of nodes that take no others.
_DAEMON = (
    {"key": UNSCHEDULABLE, "operator": "Exists"},
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
    {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
    {"key": "node.kubernetes.io/disk-pressure", "operator": "Exists"},
    {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"},
    {"key": "node.kubernetes.io/pid-pressure", "operator": "Exists"},
)
# The verbs with which a shortage begins.
_PLURALS = {"offers": "offer", "has": "have", "gives": "give", "is": "are"}


@dataclass(frozen=True)
class Place:
    """Where pods would go: so many of them, what each gets, what is not known of the nodes."""

    nodes: str
    pool: str | None
    node: str | None
    count: int
    devices: tuple[str, ...]
    unless: tuple[str, ...]


@dataclass(frozen=True)
class Obstacle:
    """Why nodes do not take a pod; ``count`` of them."""

    nodes: str
    pool: str | None
    count: int
    reason: str
    lack: ShortageKind

    @property
    def words(self) -> str:
        """Return which nodes and why, as a sentence."""
        verb, _, rest = self.reason.partition(" ")
        # A pool is one thing, however many nodes it has.
        if self.count == 1 or self.nodes.startswith("pool "):
            return f"{self.nodes} {self.reason}"
        return f"{self.nodes} each {_PLURALS.get(verb, verb)} {rest}"


@dataclass(frozen=True)
class PodsFit:
    """What becomes of pods that are alike; ``reason`` says what is in the way of those left.

    ``elsewhere``: what cannot be read of the cluster may take those left, and it is unknown.
    """

    pod: PodToFit
    wanted: int
    places: tuple[Place, ...]
    reason: str
    obstacles: tuple[Obstacle, ...]
    elsewhere: bool = False

    @property
    def fitting(self) -> int:
        """Return how many of them fit."""
        return 0 if self.pod.unchecked else self._placed

    @property
    def unknown(self) -> int:
        """Return how many pods have an unknown result."""
        if self.pod.blocked_reason:
            return 0
        if self.pod.unread:
            return self.wanted
        placed = self._placed if self.pod.unchecked else 0
        return placed + (self.wanted - self._placed if self.elsewhere else 0)

    @property
    def left(self) -> int:
        """Return how many do not fit."""
        return self.wanted - self.fitting - self.unknown

    @property
    def _placed(self) -> int:
        return sum(place.count for place in self.places)


@dataclass(frozen=True)
class Fit:
    """What becomes of pods, in the order in which the scheduler looks at them."""

    cluster: str
    is_live: bool
    pods: tuple[PodsFit, ...]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return all(pod.fitting == pod.wanted for pod in self.pods)


def fit(
    cluster: Cluster,
    name: str,
    nodes: Sequence[FitNode],
    pods: Iterable[PodToFit],
    quotas: Iterable[Mapping[str, Any]] = (),
    unread: Unread = _ALL_READ,
) -> Fit:
    """Put pods on nodes one after the other, those of a higher priority first.

    Of several nodes that could take a pod it gets the least loaded one, the first where they are
    equal: there the scheduler takes any. ``quotas`` are ResourceQuotas, ``unread`` what of the
    cluster could not be read, or is not counted: an extended resource comes from one class alone.
    """
    groups = [NodeGroup(node) for node in nodes]
    kinds = {
        resource: request
        for resource, request in {**claim_kinds(cluster), **_class_kinds(cluster)}.items()
        if resource not in unread.uncounted
    }
    claim_quotas = ClaimQuotas(quotas)
    order = sorted(pods, key=lambda pod: -pod.priority)
    fits = (_fit(unread.narrow(pod, kinds), groups, kinds, claim_quotas) for pod in order)
    results = tuple(_elsewhere(pods_fit, unread, kinds) for pods_fit in fits)
    return Fit(name, any(node.is_live for node in nodes), results)


def _elsewhere(pods_fit: PodsFit, unread: Unread, kinds: Mapping[str, Request]) -> PodsFit:
    """Return a result with what may take the pods that are left."""
    pod = pods_fit.pod
    words = unread.elsewhere(pod, kinds)
    if not words or pod.blocked_reason or pod.unread:
        return pods_fit
    # Of a DaemonSet one pod is wanted on each node.
    wanted = pods_fit.wanted + (len(unread.nodes) if pod.on_every_node else 0)
    if sum(place.count for place in pods_fit.places) == wanted:
        return pods_fit
    reason = "; ".join(dict.fromkeys(filter(None, (pods_fit.reason, *words))))
    return replace(pods_fit, wanted=wanted, reason=reason, elsewhere=True)


def claim_kinds(cluster: Cluster) -> dict[str, Request]:
    """Return what stands for an extended resource where a node serves it by claims."""
    claims = cluster.claims
    if not claims:
        return {}
    kinds = {cluster.names.gpu: Request(1, "gpu")}
    if any(claim.shares for claim in claims):
        kinds[gpu_resource(shared=True)] = Request(1, "share")
    for profile in sorted({profile for claim in claims for profile in claim.mig}):
        kinds[mig_resource(profile)] = Request(1, "mig", profile=profile)
    return kinds


def _class_kinds(cluster: Cluster) -> dict[str, Request]:
    """Return what stands for the extended resource that each class has by itself."""
    requests = list(claim_kinds(cluster).values())
    owners = {owner for claim in cluster.claims if claim.shares for owner in claim.tenants or ()}
    requests += [Request(1, "share", tenant=owner) for owner in sorted(owners)]
    requests += [Request(1, "mig")] if any(claim.mig for claim in cluster.claims) else []
    if cluster.names.classes is not None:
        requests.append(Request(1, "gpu", nvidias_class=NVIDIAS_GPUS))
        requests.append(Request(1, "mig", nvidias_class=NVIDIAS_MIG))
    return {f"{CLASS_RESOURCE}{request.device_class}": request for request in requests}


def _fit(
    pod: PodToFit,
    groups: Sequence[NodeGroup],
    kinds: Mapping[str, Request],
    quotas: ClaimQuotas,
) -> PodsFit:
    if pod.blocked_reason:
        return PodsFit(pod, pod.copies, (), pod.blocked_reason, ())
    if pod.unread:
        return PodsFit(pod, pod.copies, (), "; ".join((*pod.unread, *pod.unchecked)), ())
    if pod.on_every_node:
        return _fit_everywhere(pod, groups, kinds, quotas)
    search = _Search(pod, groups, kinds, quotas)
    places: Counter[Place] = Counter()
    for _ in range(pod.copies):
        place = search.put()
        if place is None:
            # What is taken stays taken: whatever is like this pod does not fit either.
            obstacles = search.obstacles()
            reason = "; ".join((_reason(pod, obstacles, groups, kinds), *pod.unchecked))
            return PodsFit(pod, pod.copies, _counted(places), reason, _merged(obstacles))
        places[place] += 1
    return PodsFit(pod, pod.copies, _counted(places), "; ".join(pod.unchecked), ())


class _Search:
    """Looks for nodes for pods that are alike, one pod after the other."""

    def __init__(
        self,
        pod: PodToFit,
        groups: Sequence[NodeGroup],
        kinds: Mapping[str, Request],
        quotas: ClaimQuotas,
    ) -> None:
        self._pod, self._kinds, self._quotas = pod, kinds, quotas
        self._suitable: list[tuple[NodeGroup, tuple[str, ...]]] = []
        self._refused: list[tuple[FitNode, str]] = []
        # Nodes that did not take a pod, and of alike ones what the nearest of them lacks.
        self._failed: set[NodeUsage] = set()
        self._nearest: dict[NodeGroup, Shortage] = {}
        for group in groups:
            suits = pod.selection.suits(group.node.labels)
            refused = suits.problem or repelled(pod.selection, group.node.taints)
            if refused:
                self._refused.append((group.node, refused))
            else:
                self._suitable.append((group, suits.unless))

    def put(self) -> Place | None:
        """Put a pod on the least loaded node that takes it."""
        rooms = [
            (room, group, unless)
            for group, unless in self._suitable
            for room in group.open()
            if room not in self._failed
        ]
        for room, group, unless in sorted(rooms, key=lambda entry: entry[0].load):
            got = _take(room, self._pod, self._kinds, self._quotas)
            if not isinstance(got, Shortage):
                group.keep(room)
                return _place(room.node, got, unless)
            self._failed.add(room)
            best = self._nearest.get(group)
            if best is None or (-got.lack, got.missing) < (-best.lack, best.missing):
                self._nearest[group] = got
        return None

    def obstacles(self) -> list[tuple[FitNode, Shortage]]:
        """Return why no node takes a pod."""
        refusals = [
            (node, _refusal(self._pod, node, words, self._kinds)) for node, words in self._refused
        ]
        suitable = [group for group, _ in self._suitable]
        return refusals + [(group.node, self._nearest[group]) for group in suitable]


def _take(
    room: NodeUsage, pod: PodToFit, kinds: Mapping[str, Request], quotas: ClaimQuotas
) -> tuple[str, ...] | Shortage:
    """Put a pod on a node as ``NodeUsage.take`` does, unless a quota refuses one of its claims."""
    usage = _usage(room.node, pod, kinds) if quotas.limits(pod.namespace) else {}
    refusal = quotas.refusal(pod.namespace, usage, {}) if usage else ""
    if refusal:
        return Shortage(ShortageKind.NOT_ALLOWED, f"cannot serve it: {refusal}")
    got = room.take(pod, kinds)
    if not isinstance(got, Shortage):
        quotas.charge(pod.namespace, usage)
    return got


def _usage(node: FitNode, pod: PodToFit, kinds: Mapping[str, Request]) -> Usage:
    """Return what the claims count for that a pod would yet get on a node."""
    served = served_by_claims(node, pod, kinds)
    usage = Counter(usage_of_resources(pod.requests, {name: kinds[name] for name in served}))
    for specification in pod.new_claims:
        usage.update(usage_of_claim({"spec": specification}))
    for resource, request in kinds.items():
        # A claim counts for the resource, too, but for what its pod counts for already.
        own = int(pod.requests[resource]) if resource in served else 0
        usage[f"requests.{resource}"] = usage[f"{request.device_class}{CLASS_QUOTA}"] - own
    return +usage


def _fit_everywhere(
    pod: PodToFit,
    groups: Sequence[NodeGroup],
    kinds: Mapping[str, Request],
    quotas: ClaimQuotas,
) -> PodsFit:
    """Put one pod on each node that the pod may go to."""
    selection = replace(pod.selection, tolerations=(*pod.selection.tolerations, *_DAEMON))
    daemon = replace(pod, selection=selection)
    places: Counter[Place] = Counter()
    obstacles = []
    wanted = 0
    for group in groups:
        suits = selection.suits(group.node.labels)
        if suits.problem or repelled(daemon.selection, group.node.taints):
            continue
        for room in group.all():
            wanted += 1
            got = _take(room, daemon, kinds, quotas)
            if isinstance(got, Shortage):
                obstacles.append((group.node, got))
            else:
                places[_place(room.node, got, suits.unless)] += 1
    reasons = (*([_reason(pod, obstacles, groups, kinds)] if obstacles else []), *pod.unchecked)
    reason = "; ".join(reasons)
    return PodsFit(pod, wanted, _counted(places), reason, _merged(obstacles, per_node=True))


def _refusal(pod: PodToFit, node: FitNode, words: str, kinds: Mapping[str, Request]) -> Shortage:
    """Return what a node lacks at all, or else why the pod may not go there."""
    empty = replace(node, used={}, pods=0, holders={})
    got = room_of(empty).take(pod, kinds)
    if isinstance(got, Shortage) and got.lack < ShortageKind.NOT_ALLOWED:
        return got
    return Shortage(ShortageKind.NOT_ALLOWED, words)


def _reason(
    pod: PodToFit,
    obstacles: Sequence[tuple[FitNode, Shortage]],
    groups: Sequence[NodeGroup],
    kinds: Mapping[str, Request],
) -> str:
    """Describe in one sentence what is in the way."""
    if not obstacles:
        return "there are no nodes"
    what = "node" if groups[0].node.is_live else "pool"
    resources = sorted(name for name in pod.requests if "/" in name)
    most = max(shortage.lack for _, shortage in obstacles)
    if most is ShortageKind.NOT_OFFERED:
        offered = _offered(groups, kinds)
        unknown = next((name for name in resources if name not in offered), "")
        devices = sorted(
            name for name in offered if "/" in name and not name.startswith(CLASS_RESOURCE)
        )
        if unknown:
            remedy = nearest(unknown, devices) if devices else f"no {what} offers any GPU resource"
            return f"no {what} offers {unknown}; {remedy}"
        if len(resources) > 1:
            return f"no {what} offers all of it: {' and '.join(resources)}"
    last = _merged([obstacle for obstacle in obstacles if obstacle[1].lack is most])
    words = "; ".join(obstacle.words for obstacle in last[:2])
    more = f"; and {len(last) - 2} more" if len(last) > 2 else ""
    # For a claim no pod is ended: a shortage of devices names no resource.
    ended = [
        node.lowest_priority
        for node, shortage in obstacles
        if shortage.lack is ShortageKind.NOT_FREE and shortage.resource
    ]
    if any(lowest is not None and lowest < pod.priority for lowest in ended):
        more += "; the scheduler may end pods of a lower priority for it"
    return words + more


def _offered(groups: Sequence[NodeGroup], kinds: Mapping[str, Request]) -> set[str]:
    """Return the resources that any node offers, also by claims."""
    nodes = [group.node for group in groups]
    devices = [device for node in nodes for gpu in node.gpus for device in gpu.devices]
    by_claims = {
        name
        for name, request in kinds.items()
        if any(is_kind(request, device) for device in devices)
    }
    return by_claims.union(*(node.capacity for node in nodes))


def _merged(
    obstacles: Sequence[tuple[FitNode, Shortage]], *, per_node: bool = False
) -> tuple[Obstacle, ...]:
    """Return obstacles with equal ones of a pool as one; ``per_node`` counts one of a group."""
    count: Counter[tuple[str, str | None, Shortage]] = Counter()
    first: dict[tuple[str | None, str], tuple[str, Shortage]] = {}
    for node, shortage in obstacles:
        nodes, alike = first.setdefault((node.pool, shortage.words), (node.words, shortage))
        count[nodes, node.pool, alike] += 1 if per_node else node.count
    return tuple(
        Obstacle(
            nodes if number == 1 or nodes.startswith("pool ") else f"{nodes} and {number - 1} more",
            pool,
            number,
            shortage.words,
            shortage.lack,
        )
        for (nodes, pool, shortage), number in count.items()
    )


def _place(node: FitNode, devices: tuple[str, ...], unless: tuple[str, ...]) -> Place:
    return Place(node.words, node.pool, node.labels.name, 1, devices, unless)


def _counted(places: Mapping[Place, int]) -> tuple[Place, ...]:
    return tuple(replace(place, count=number) for place, number in places.items())
