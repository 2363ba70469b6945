"""The desired state of this node: the stack's configuration resolved for its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from divvy.agent.gpu.assignment import Assignment, assign, without
from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.health import HealthRules
from divvy.agent.gpu.node import NodeView
from divvy.model import (
    Cluster,
    DesiredNode,
    FileDevices,
    GpuFacts,
    InvalidCluster,
    NewerSchema,
    NodeFacts,
    Selection,
    model_of_product,
    parse_canonical,
    resolve,
    select_profile,
)
from divvy.model.enforcement import NodeCapabilities, driver_limits_problem
from divvy.model.versions import is_older

_NOTHING = DesiredNode(pool=None, profile=None, source="pool", gpus=(), problems=())


@dataclass(frozen=True)
class DesiredState:
    """The desired state of this node and the rules for getting there.

    ``config`` is the canonical JSON that was accepted; ``problem`` says what of
    the newest input was not, and so which older state is kept. ``replaced`` are
    the UUIDs of GPUs that are gone for good. ``has_claims``: some profile of the stack has
    claims, of whatever node. ``capabilities`` is what the node can limit memory with, None while
    it is not known.
    """

    node: DesiredNode = _NOTHING
    config: str | None = None
    profile: str | None = None
    assignment: Mapping[int, str] = field(default_factory=dict)
    replaced: frozenset[str] = frozenset()
    policy: Policy = Policy("wait", 600.0)
    health: HealthRules = HealthRules()
    replica_policy: str = "spread"
    min_version: str | None = None
    strategy: str | None = None
    file_devices: tuple[FileDevices, ...] = ()
    has_claims: bool = False
    capabilities: NodeCapabilities | None = None
    problem: str = ""

    @property
    def driver_limits_problem(self) -> str:
        """Return why the driver of this node cannot limit a container's memory, "" if it can."""
        return "" if self.capabilities is None else driver_limits_problem(self.capabilities)

    def driver_problem(self, snapshot: Snapshot | None) -> str:
        """Return a message if the driver is older than the stack file accepts, else ""."""
        if snapshot is None or not self.min_version:
            return ""
        if not is_older(snapshot.driver_version, self.min_version):
            return ""
        return f"driver {snapshot.driver_version} is below driver.minVersion {self.min_version}"


def desired_state(
    config: str | None,
    name: str,
    node: NodeView,
    snapshot: Snapshot | None,
    checkpoint: Checkpoint,
    boot: str = "",
    capabilities: NodeCapabilities | None = None,
) -> DesiredState:
    """Resolve the newest configuration that is good for this node.

    A configuration that is invalid or newer than this agent, and a label that
    names no profile, leave the last good one in force. ``boot`` is what the kernel
    calls this boot; ``capabilities`` is what this node can limit memory with.
    """
    cluster, accepted, problem = _accepted(config, checkpoint)
    if cluster is None:
        return DesiredState(problem=problem, assignment=checkpoint.assignment)
    selection = select_profile(cluster, NodeFacts(name, node.labels))
    if selection.problem is not None:
        problem = problem or selection.problem
        last_profile = checkpoint.profile if checkpoint.profile in cluster.profiles else None
        selection = Selection(selection.pool, last_profile, selection.source, None)
    hardware = cluster.pools[selection.pool].hardware if selection.pool is not None else None
    assignment = Assignment(checkpoint.assignment)
    gpus: tuple[Gpu, ...] = ()
    if snapshot is not None:
        expected = None if hardware is None else hardware.gpus
        assignment = assign(checkpoint.assignment, snapshot, checkpoint.last_seen, boot, expected)
        gpus = without(snapshot, assignment.replaced)
    facts = [
        GpuFacts(
            gpu.index,
            gpu.uuid,
            gpu.product,
            gpu.memory_mib,
            model_of_product(gpu.product, gpu.memory_mib),
            gpu.compute_capability if any(gpu.compute_capability) else None,
        )
        for gpu in gpus
    ]
    desired = resolve(cluster, selection, facts, assignment.uuids, capabilities)
    health = cluster.health
    return DesiredState(
        node=desired,
        config=accepted,
        profile=selection.profile,
        assignment=assignment.uuids,
        replaced=assignment.replaced,
        policy=Policy(cluster.change.policy, cluster.change.deadline),
        health=HealthRules(frozenset(health.ignore_xids), health.recover_after),
        replica_policy=cluster.placement.replicas,
        min_version=cluster.driver.min_version,
        strategy=_strategy(desired),
        file_devices=cluster.devices,
        has_claims=any(profile.by_claims for profile in cluster.profiles.values()),
        capabilities=capabilities,
        problem=problem or "; ".join(desired.problems),
    )


def _accepted(config: str | None, checkpoint: Checkpoint) -> tuple[Cluster | None, str | None, str]:
    if config is None:
        return None, None, "no configuration yet: the stack's ConfigMap has not been seen"
    try:
        return parse_canonical(config), config, ""
    except (InvalidCluster, NewerSchema) as refusal:
        problem = f"configuration rejected, keeping the last good one: {refusal}"
    if checkpoint.config is None or checkpoint.config == config:
        return None, None, problem
    try:
        return parse_canonical(checkpoint.config), checkpoint.config, problem
    except (InvalidCluster, NewerSchema):
        return None, None, problem


def _strategy(desired: DesiredNode) -> str | None:
    resources = {
        offer.resource for gpu in desired.gpus for offer in gpu.offers if offer.kind == "mig"
    }
    if not resources:
        return None
    return "mixed" if any("/mig-" in name for name in resources) else "single"
