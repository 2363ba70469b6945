"""What the plan promises for each live node and resource: the cases the checks run over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from divvy.model import Cluster, NodeFacts, pool_of, select_profile
from divvy.plan import Device, NodePlan, Plan, PoolPlan, predict_node


@dataclass(frozen=True)
class NodePromise:
    """One live node of a pool and what it should offer."""

    name: str
    pool: str
    profile: str
    plan: NodePlan
    labels: Mapping[str, str]

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
    def mode(self) -> str:
        """Return how the devices of this resource are shared."""
        sliced = self.device.shares > 1
        if self.device.kind == "mig" or self.device.placement is not None:
            return "mig+time-slicing" if sliced else "mig"
        return "time-slicing" if sliced else "whole"

    @property
    def one_per_container(self) -> bool:
        """Tell whether the file wants a container's second share refused."""
        offers = (offer for gpu in self.node.plan.gpus for offer in gpu.offers)
        return all(
            offer.fail_requests_greater_than_one
            for offer in offers
            if offer.resource == self.resource
        )

    def __str__(self) -> str:
        return f"{self.node.name}:{self.resource}"


def node_promises(
    cluster: Cluster, plan: Plan, nodes: Mapping[str, Mapping[str, str]], pool: str | None
) -> list[NodePromise]:
    """Pair live nodes (name → labels) with the plan; nodes outside all pools are left out."""
    plans = {found.name: found for found in plan.pools}
    promises = []
    for name, labels in sorted(nodes.items()):
        facts = NodeFacts(name, labels)
        own = pool_of(cluster, facts)
        if own is None or (pool is not None and own != pool):
            continue
        node_plan = _plan_of(cluster, plans[own], facts)
        if node_plan is not None and node_plan.gpus:
            promises.append(NodePromise(name, own, node_plan.profile, node_plan, labels))
    return promises


def _plan_of(cluster: Cluster, pool: PoolPlan, node: NodeFacts) -> NodePlan | None:
    """Return the plan of a node; a label that names another profile counts, as for the agent."""
    planned = pool.overrides.get(node.name) or pool.node
    chosen = select_profile(cluster, node).profile
    if planned is None or chosen in (None, planned.profile):
        return planned
    return plan_under(cluster, planned, chosen)


def plan_under(cluster: Cluster, planned: NodePlan, profile: str) -> NodePlan:
    """Return what a node would offer under another profile."""
    return predict_node(cluster, profile, planned.gpus[0].model, len(planned.gpus))


def device_promises(nodes: Sequence[NodePromise]) -> list[DevicePromise]:
    """List every resource of every node."""
    promises = []
    for node in nodes:
        for resource, count in node.plan.per_node.items():
            devices = [found for found in node.plan.devices if found.resource == resource]
            if devices[0].gpu is None:
                continue  # device files of other vendors have no GPU workloads
            kinds = len({(found.gpu, found.placement) for found in devices})
            promises.append(DevicePromise(node, resource, count, devices[0], kinds))
    return promises
