"""The plan: what every node of a cluster will advertise, computed from its stack file."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from divvy.model import (
    Cluster,
    GpuFacts,
    GpuModel,
    Offer,
    Placement,
    Pool,
    Selection,
    hardware_model,
    place,
    resolve,
)
from divvy.model.claims import Claims
from divvy.plan.predict.claimable import Claimable, claimable
from divvy.plan.predict.guarantees import FILES, Guarantees, guarantees
from divvy.plan.review.profile_changes import Profiles, profiles_of
from divvy.plan.review.setting_changes import settings_of


@dataclass(frozen=True)
class Device:
    """One device that a pod can get: a GPU, a MIG device, a replica, or other device files.

    ``memory_mib`` and ``sms`` are what the device can reach, which only the
    guarantees make its own; ``share`` numbers the replicas of one device.
    """

    resource: str
    gpu: int | None
    kind: str
    memory_mib: int | None
    sms: int | None
    guarantees: Guarantees
    placement: Placement | None = None
    share: int = 0
    shares: int = 1


@dataclass(frozen=True)
class GpuPlan:
    """One GPU of a node: how it is partitioned (None: MIG off) and what it advertises.

    With ``claims`` it advertises nothing: it becomes what pods claim.
    """

    index: int
    model: GpuModel
    placements: tuple[Placement, ...] | None
    offers: tuple[Offer, ...]
    devices: tuple[Device, ...]
    claims: Claims | None = None

    @property
    def shape(self) -> tuple[object, ...]:
        """Return what has to be equal for two GPUs to look and behave the same."""
        return (self.model.name, self.placements, self.offers, self.claims)


@dataclass(frozen=True)
class NodePlan:
    """What one node advertises, and what pods can claim of it at most, each kind alone."""

    profile: str
    gpus: tuple[GpuPlan, ...]
    other_devices: tuple[Device, ...]
    notes: tuple[str, ...]
    claimable: tuple[Claimable, ...] = ()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return all devices of the node: GPU by GPU, then those of other vendors."""
        return (*(device for gpu in self.gpus for device in gpu.devices), *self.other_devices)

    @property
    def per_node(self) -> Mapping[str, int]:
        """Return the number of devices under each resource name."""
        return dict(sorted(Counter(device.resource for device in self.devices).items()))

    @property
    def offered(self) -> Mapping[str, int]:
        """Return the devices by resource name, with those that can be claimed at most."""
        claimable = {kind.name: kind.at_most for kind in self.claimable}
        return dict(sorted((*self.per_node.items(), *claimable.items())))


@dataclass(frozen=True)
class PoolPlan:
    """What the nodes of a pool advertise; without hardware in the stack file, nothing is known."""

    name: str
    profile: str
    select: Mapping[str, str] | None
    model: GpuModel | None
    count: int | None
    node: NodePlan | None
    overrides: Mapping[str, NodePlan]

    @property
    def alike(self) -> int:
        """Return how many nodes follow the pool's own profile."""
        return (self.count or 0) - len(self.overrides)

    @property
    def totals(self) -> Mapping[str, int]:
        """Return the devices of all its nodes by resource."""
        totals: Counter[str] = Counter()
        if self.node is not None and self.alike:
            for resource, number in self.node.offered.items():
                totals[resource] += number * self.alike
        for node in self.overrides.values():
            totals.update(node.offered)
        return dict(sorted(totals.items()))


@dataclass(frozen=True)
class Plan:
    """What a cluster advertises.

    ``settings`` are the values of the stack file that the topology does not show, by path;
    ``policy`` is what happens to pods that are in the way of a change.
    """

    cluster: str
    pools: tuple[PoolPlan, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    policy: str = "wait"
    profiles: Profiles = Profiles()

    @property
    def totals(self) -> Mapping[str, int]:
        """Return the devices of the whole cluster by resource."""
        totals: Counter[str] = Counter()
        for pool in self.pools:
            totals.update(pool.totals)
        return dict(sorted(totals.items()))


def plan(cluster: Cluster, name: str) -> Plan:
    """Predict what a valid cluster advertises, pool by pool in the order of the file."""
    predictor = _Predictor(cluster)
    return Plan(
        name,
        tuple(predictor.pool(key, pool) for key, pool in cluster.pools.items()),
        settings_of(cluster),
        cluster.change.policy,
        profiles_of(cluster),
    )


class _Predictor:
    """Predicts nodes; those with the same profile and hardware share one answer."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[tuple[str, str, int], NodePlan] = {}

    def pool(self, name: str, pool: Pool) -> PoolPlan:
        if pool.hardware is None:
            return PoolPlan(name, pool.profile, pool.select, None, None, None, {})
        model = hardware_model(pool.hardware)
        gpus = pool.hardware.gpus
        return PoolPlan(
            name=name,
            profile=pool.profile,
            select=pool.select,
            model=model,
            count=pool.hardware.count,
            node=self._node(pool.profile, model, gpus),
            overrides={
                node: self._node(profile, model, gpus)
                for node, profile in sorted(pool.overrides.items())
            },
        )

    def _node(self, profile: str, model: GpuModel, gpus: int) -> NodePlan:
        key = (profile, model.name, gpus)
        if key not in self._known:
            self._known[key] = predict_node(self._cluster, profile, model, gpus)
        return self._known[key]


def predict_node(cluster: Cluster, profile: str, model: GpuModel, gpus: int) -> NodePlan:
    """Predict what a node with that many GPUs of a model advertises under a profile."""
    facts = [
        GpuFacts(index, f"GPU {index}", model.product, model.memory_mib, model)
        for index in range(gpus)
    ]
    desired = resolve(cluster, Selection(None, profile, "pool", None), facts)
    by_uuid = tuple(
        f"rule [{number}] of profile {profile} selects by UUID, "
        "which a plan cannot match; the plan shows those GPUs as if the rule did not exist"
        for number, rule in enumerate(cluster.profiles[profile].rules)
        if rule.devices.uuids
    )
    return NodePlan(
        profile=profile,
        gpus=tuple(
            GpuPlan(gpu.index, model, None, (), (), gpu.claims)
            if gpu.claims is not None
            else _gpu(gpu.index, model, gpu.mig, gpu.offers)
            for gpu in desired.gpus
        ),
        other_devices=tuple(
            Device(other.resource, None, "file", None, None, FILES, None, share, other.count)
            for other in cluster.devices
            for share in range(other.count)
        ),
        notes=(*_without_data(model), *by_uuid, *desired.problems),
        claimable=claimable(
            [(model, gpu.claims) for gpu in desired.gpus if gpu.claims is not None], cluster.names
        ),
    )


def _without_data(model: GpuModel) -> tuple[str, ...]:
    """Return what a plan cannot know of a model that there is no data for."""
    if model.is_described:
        return ()
    return (
        f"{model.name} is not among the models that Divvy knows: its SMs and its MIG geometry are "
        "not known, and its memory is what the stack file says; it is offered whole or "
        "time-sliced",
    )


def _gpu(
    index: int, model: GpuModel, layout: Mapping[str, int] | None, offers: tuple[Offer, ...]
) -> GpuPlan:
    if layout is None or model.mig is None:
        devices = _shares(offers[0], index, model.memory_mib, model.sms, None)
        return GpuPlan(index, model, None, offers, devices)
    by_profile = {offer.mig_profile: offer for offer in offers}
    placements = place(model.mig, layout)
    cut: list[Device] = []
    for placement in placements:
        profile = model.mig.profile(placement.profile)
        assert profile is not None
        offer = by_profile[placement.profile]
        cut += _shares(offer, index, profile.memory_mib, profile.sms, placement)
    return GpuPlan(index, model, placements, offers, tuple(cut))


def _shares(
    offer: Offer, gpu: int, memory_mib: int, sms: int | None, placement: Placement | None
) -> tuple[Device, ...]:
    sharing = offer.sharing
    kind = offer.kind if not sharing.is_shared else f"{offer.kind}-replica"
    promise = guarantees(offer)
    if sharing.is_prevented and sharing.memory_mib is not None:
        memory_mib = sharing.memory_mib
    return tuple(
        Device(
            offer.resource, gpu, kind, memory_mib, sms, promise, placement, share, sharing.replicas
        )
        for share in range(sharing.replicas)
    )
