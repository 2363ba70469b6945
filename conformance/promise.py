"""The plan's promise for each live node and resource: the cases the checks run over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from divvy.live.live_diff import LiveNode, concerns
from divvy.model import Cluster, NodeFacts, Offer, pool_of, select_profile
from divvy.model.api_names import Mode
from divvy.model.sharing import Sharing
from divvy.plan import Device, NodePlan, Plan, PoolPlan, predict_node

# The case of GPU nodes that no pool selects.
NO_POOL = "no pool"


@dataclass(frozen=True)
class NodePromise:
    """One live node of a pool and what it should advertise.

    ``unready`` says why nothing can be checked there, "" if all can: no pod can run, or the
    stack file does not say which GPUs it has, and the plan is empty.
    """

    name: str
    pool: str
    profile: str
    plan: NodePlan
    labels: Mapping[str, str] = field(default_factory=dict)
    unready: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DevicePromise:
    """One resource on one node: how many devices, and what one of them is."""

    node: NodePromise
    resource: str
    count: int
    device: Device
    kinds: int

    @property
    def mode(self) -> Mode:
        """Return how the devices of this resource are shared."""
        is_mig = self.device.kind == "mig" or self.device.placement is not None
        if self.device.shares == 1:
            return Mode.MIG if is_mig else Mode.WHOLE
        if self.mps is not None:
            prevented = any(offer.sharing.is_prevented for offer in self._offers)
            return Mode.MPS_LIMIT if prevented else Mode.MPS
        if any(offer.sharing.is_prevented for offer in self._offers):
            return Mode.MIG_TIME_SLICING_LIMIT if is_mig else Mode.TIME_SLICING_LIMIT
        return Mode.MIG_TIME_SLICING if is_mig else Mode.TIME_SLICING

    @property
    def one_per_container(self) -> bool:
        """Return whether the file wants a second replica for a container refused."""
        return all(offer.sharing.one_per_container for offer in self._offers)

    @property
    def mps(self) -> Sharing | None:
        """Return what MPS gives each of the devices, None if they are not shared by it."""
        return next((offer.sharing for offer in self._offers if offer.sharing.by_mps), None)

    @property
    def compute(self) -> str | None:
        """Return how the limiter divides the GPU's time, None if it does not."""
        return next((offer.sharing.compute for offer in self._offers), None)

    @property
    def _offers(self) -> list[Offer]:
        offers = (offer for gpu in self.node.plan.gpus for offer in gpu.offers)
        return [offer for offer in offers if offer.resource == self.resource]

    def __str__(self) -> str:
        return f"{self.node.name}:{self.resource}"


@dataclass(frozen=True)
class ClaimPromise:
    """One GPU of a node that pods claim."""

    node: NodePromise
    index: int

    def __str__(self) -> str:
        return f"{self.node.name}:GPU {self.index}"


def claim_promises(
    nodes: Sequence[NodePromise], *, all_by_claims: bool = False
) -> list[ClaimPromise]:
    """List every GPU that pods claim.

    ``all_by_claims`` says that a DRA driver serves whatever the plan promises: pods claim each GPU
    that is not partitioned.
    """
    return [
        ClaimPromise(node, gpu.index)
        for node in nodes
        for gpu in node.plan.gpus
        if gpu.claims or (all_by_claims and gpu.placements is None)
    ]


def node_promises(
    cluster: Cluster,
    plan: Plan,
    nodes: Sequence[LiveNode],
    pool: str | None,
    unready: Mapping[str, str] | None = None,
) -> list[NodePromise]:
    """Pair live nodes with the plan; nodes that the stack file says nothing about are left out.

    ``unready`` says of nodes, by name, why no pod can run there.
    """
    plans = {pool.name: pool for pool in plan.pools}
    promises = []
    for live in sorted(nodes, key=lambda node: node.name):
        facts = NodeFacts(live.name, live.labels)
        own = pool_of(cluster, facts)
        if own is None or (pool is not None and own != pool):
            continue
        if not concerns(cluster, live, select_profile(cluster, facts)):
            continue
        why = (unready or {}).get(live.name, "")
        node_plan = _plan_of(cluster, plans[own], facts)
        if node_plan is None:
            # Nothing is promised, and that is not the same as nothing to check.
            node_plan = NodePlan(select_profile(cluster, facts).profile or "", (), (), ())
            why = why or f"the stack file does not say which GPUs the nodes of pool {own} have"
        promises.append(NodePromise(live.name, own, node_plan.profile, node_plan, live.labels, why))
    return promises


def _plan_of(cluster: Cluster, pool: PoolPlan, node: NodeFacts) -> NodePlan | None:
    """Return the plan of a node; a label that names another profile counts, as for the agent."""
    planned = pool.overrides.get(node.name) or pool.node
    chosen = select_profile(cluster, node).profile
    if planned is None or chosen in (None, planned.profile):
        return planned
    return plan_under(cluster, planned, chosen)


def plan_under(cluster: Cluster, planned: NodePlan, profile: str) -> NodePlan:
    """Return what a node would advertise under another profile."""
    return predict_node(cluster, profile, planned.gpus[0].model, len(planned.gpus))


def device_promises(nodes: Sequence[NodePromise]) -> list[DevicePromise]:
    """List every resource of every node."""
    promises = []
    for node in nodes:
        for resource, count in node.plan.per_node.items():
            devices = [device for device in node.plan.devices if device.resource == resource]
            if devices[0].gpu is None:
                continue  # device files of other vendors have no GPU workloads
            kinds = len({(device.gpu, device.placement) for device in devices})
            promises.append(DevicePromise(node, resource, count, devices[0], kinds))
    return promises
