"""The nodes that pods could go to: those that a plan predicts, or those that there are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from divvy.model import Cluster, GpuModel, NodeFacts, Toleration, pool_of
from divvy.model.claim_devices import ClaimableGpu, ClaimDevice, claimable_gpu
from divvy.model.claim_names import type_of_product
from divvy.model.pod_phase import is_finished
from divvy.model.problems import printable
from divvy.model.resource_names import VENDOR
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice
from divvy.plan.fit.node_selection import Labels, Taint, taints_of
from divvy.plan.fit.pod_requests import pod_requests, quantities, sum_of
from divvy.plan.predict.prediction import NodePlan, Plan


@dataclass(frozen=True)
class FitNode:
    """A node, or ``count`` nodes that are alike and hold nothing.

    ``capacity`` is by resource: devices, and cpu (cores), memory (bytes) and pods where
    ``is_live``. ``used`` is what pods hold of it, ``holders`` who, by extended resource.
    ``single_replica_resources`` are those of which a container gets no second device. ``gpus``
    are those that claims are offered; with ``spread`` the least used of them is offered first.
    """

    labels: Labels
    pool: str | None
    capacity: Mapping[str, Fraction]
    single_replica_resources: frozenset[str] = frozenset()
    gpus: tuple[ClaimedGpu, ...] = ()
    spread: bool = True
    count: int = 1
    taints: tuple[Taint, ...] = ()
    is_live: bool = False
    used: Mapping[str, Fraction] = field(default_factory=dict)
    pods: int = 0
    holders: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lowest_priority: int | None = None

    @property
    def words(self) -> str:
        """Return which nodes these are: ``pool research``, ``node gpu-1 (research)``."""
        if self.labels.name is None:
            return f"pool {self.pool}"
        of = "" if self.pool is None else f" ({self.pool})"
        return printable(f"node {self.labels.name}{of}")


def nodes_of_plan(cluster: Cluster, plan: Plan) -> tuple[FitNode, ...]:
    """Return the nodes of a plan, none of them holding anything, pool by pool."""
    nodes = []
    for pool in plan.pools:
        if pool.model is None or pool.node is None:
            continue
        known = {
            **(pool.select or {}),
            f"{VENDOR}/gpu.count": str(len(pool.node.gpus)),
        }
        taints = tuple(_taints(cluster.pools[pool.name].tolerations))
        products = frozenset(map(_label_value, (pool.model.product, *pool.model.products)))
        sides: list[tuple[str | None, NodePlan, int]] = [(None, pool.node, pool.alike)]
        sides += [(name, node, 1) for name, node in pool.overrides.items()]
        for name, node, count in sides:
            if count > 0:
                labels = Labels(known, complete=False, name=name, products=products)
                capacity = {
                    resource: Fraction(number) for resource, number in node.per_node.items()
                }
                gpus, spread = _gpus(pool.name, node)
                nodes.append(
                    FitNode(
                        labels,
                        pool.name,
                        capacity,
                        _single_replica_resources(node),
                        gpus,
                        spread,
                        count,
                        taints,
                    )
                )
    return tuple(nodes)


def nodes_of_cluster(
    cluster: Cluster,
    plan: Plan,
    nodes: Iterable[Mapping[str, Any]],
    pods: Iterable[Mapping[str, Any]],
    gpus: Iterable[ClaimedGpu],
) -> tuple[FitNode, ...]:
    """Return the nodes of the API with what their pods hold, by name.

    The plan tells what the API does not: which resources a container gets one device of.
    """
    single_replica_resources = {
        pool.name: _single_replica_resources(pool.node)
        for pool in plan.pools
        if pool.node is not None
    }
    on_node: dict[str, list[Mapping[str, Any]]] = {}
    for pod in pods:
        if not is_finished(pod) and pod["spec"].get("nodeName"):
            on_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
    gpus_of: dict[str, list[ClaimedGpu]] = {}
    for gpu in gpus:
        gpus_of.setdefault(gpu.node, []).append(gpu)
    fit_nodes = (
        _live_node(
            raw,
            pool_of(cluster, _facts(raw)),
            single_replica_resources,
            on_node.get(raw["metadata"]["name"], ()),
            tuple(gpus_of.get(raw["metadata"]["name"], ())),
        )
        for raw in nodes
    )
    return tuple(sorted(fit_nodes, key=lambda node: str(node.labels.name)))


def _facts(raw: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(raw["metadata"]["name"], raw["metadata"].get("labels") or {})


def _live_node(
    raw: Mapping[str, Any],
    pool: str | None,
    single_replica_resources: Mapping[str, frozenset[str]],
    pods: Sequence[Mapping[str, Any]],
    gpus: tuple[ClaimedGpu, ...],
) -> FitNode:
    meta, spec = raw["metadata"], raw.get("spec") or {}
    labels = meta.get("labels") or {}
    requests = [pod_requests(pod["spec"]) for pod in pods]
    holders: dict[str, tuple[str, ...]] = {}
    for pod, resources in zip(pods, requests, strict=True):
        name = printable(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
        for resource in resources:
            if "/" in resource:
                holders[resource] = (*holders.get(resource, ()), name)
    return FitNode(
        labels=Labels(labels, name=meta["name"]),
        pool=pool,
        capacity=quantities((raw.get("status") or {}).get("allocatable") or {}),
        single_replica_resources=single_replica_resources.get(pool or "", frozenset()),
        gpus=gpus,
        taints=taints_of(spec),
        is_live=True,
        used=sum_of(requests),
        pods=len(pods),
        holders=holders,
        lowest_priority=min((pod["spec"].get("priority") or 0 for pod in pods), default=None),
    )


def _single_replica_resources(node: NodePlan) -> frozenset[str]:
    return frozenset(
        offer.resource
        for gpu in node.gpus
        for offer in gpu.offers
        if offer.sharing.is_shared and offer.sharing.one_per_container
    )


def _taints(tolerations: Iterable[Toleration]) -> Iterator[Taint]:
    """Yield the taints of a pool's nodes, as its tolerations for the agent tell them."""
    for toleration in tolerations:
        if toleration.key is not None:
            value = None if toleration.operator == "Exists" else toleration.value or ""
            yield Taint(toleration.key, value, toleration.effect or "NoSchedule")


def _label_value(product: str) -> str:
    """Return a product as the label of the product has it."""
    label_text = "".join(char for char in product if char.isalnum() or char in "-_. ")
    return "-".join(label_text.split())


def _gpus(pool: str, node: NodePlan) -> tuple[tuple[ClaimedGpu, ...], bool]:
    served = [(gpu.index, gpu.model, gpu.claims) for gpu in node.gpus if gpu.claims is not None]
    gpus = tuple(
        _claimed(pool, index, model, claimable_gpu(f"gpu-{index}", model.memory_mib, model, claims))
        for index, model, claims in served
    )
    shares = [claims.shares for _, _, claims in served if claims.shares is not None]
    return gpus, all(share.placement == "spread" for share in shares)


def _claimed(pool: str, index: int, model: GpuModel, gpu: ClaimableGpu) -> ClaimedGpu:
    """Return a GPU as its slices will tell it, with nothing held."""
    return ClaimedGpu(
        node=pool,
        index=index,
        uuid=gpu.uuid,
        product=model.product,
        type=type_of_product(model.product),
        devices=tuple(_device(device) for device in gpu.devices),
        free=gpu.counters or {},
    )


def _device(device: ClaimDevice) -> LiveDevice:
    size = device.share
    profile = None if device.profile is None else device.profile.name
    plain = LiveDevice(
        name=device.name,
        kind=device.kind,
        whole=device.whole,
        tenant=device.tenant,
        profile=profile,
        memory_mib=device.memory_mib,
        cores=0,
        most=1,
        consumes=device.consumes or {},
        taints=(),
    )
    if size is None:
        return plain
    return replace(
        plain,
        memory_mib=size.memory_mib,
        cores=100,
        most=size.most,
        step_mib=size.step_mib,
        default_mib=size.default_mib,
        default_cores=size.default_cores,
    )
