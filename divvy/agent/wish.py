"""What this node should be: the stack's configuration resolved for the GPUs that are here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from divvy.agent.cluster import NodeView
from divvy.agent.driver import older
from divvy.agent.hardware import Snapshot
from divvy.agent.health_watch import HealthRules
from divvy.agent.last_good import LastGood
from divvy.agent.turn import Policy
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

_NOTHING = DesiredNode(pool=None, profile=None, source="pool", gpus=(), problems=())


@dataclass(frozen=True)
class Wish:
    """The desired state of this node and the rules for getting there.

    ``config`` is the canonical JSON that was accepted; ``problem`` says what of
    the newest input was not, and so which older state is kept.
    """

    node: DesiredNode = _NOTHING
    config: str | None = None
    profile: str | None = None
    assignment: Mapping[int, str] = field(default_factory=dict)
    policy: Policy = Policy("wait", 600.0)
    health: HealthRules = HealthRules()
    replica_policy: str = "spread"
    min_version: str | None = None
    strategy: str | None = None
    file_devices: tuple[FileDevices, ...] = ()
    problem: str = ""

    def driver_problem(self, snapshot: Snapshot | None) -> str:
        """Say that the driver is older than the stack file accepts, "" where it is not."""
        if snapshot is None or not self.min_version:
            return ""
        if not older(snapshot.driver_version, self.min_version):
            return ""
        return f"driver {snapshot.driver_version} is below driver.minVersion {self.min_version}"


def form_wish(
    config: str | None, name: str, node: NodeView, snapshot: Snapshot | None, memory: LastGood
) -> Wish:
    """Resolve the newest configuration that is good for this node.

    A configuration that is invalid or newer than this agent, and a label that
    names no profile, leave the last good one in force.
    """
    cluster, accepted, problem = _accepted(config, memory)
    if cluster is None:
        return Wish(problem=problem)
    selection = select_profile(cluster, NodeFacts(name, node.labels))
    if selection.problem is not None:
        problem = problem or selection.problem
        kept = memory.profile if memory.profile in cluster.profiles else None
        selection = Selection(selection.pool, kept, selection.source, None)
    gpus = [] if snapshot is None else list(snapshot.gpus)
    assignment = dict(memory.assignment)
    for gpu in gpus:
        if not gpu.lost and gpu.uuid not in assignment.values():
            assignment.setdefault(gpu.index, gpu.uuid)
    facts = [
        GpuFacts(
            gpu.index,
            gpu.uuid,
            gpu.product,
            gpu.memory_mib,
            model_of_product(gpu.product, gpu.memory_mib),
        )
        for gpu in gpus
    ]
    desired = resolve(cluster, selection, facts, assignment)
    health = cluster.health
    return Wish(
        node=desired,
        config=accepted,
        profile=selection.profile,
        assignment=assignment,
        policy=Policy(cluster.change.policy, cluster.change.deadline),
        health=HealthRules(frozenset(health.ignore_xids), health.recover_after),
        replica_policy=cluster.placement.replicas,
        min_version=cluster.driver.min_version,
        strategy=_strategy(desired),
        file_devices=cluster.devices,
        problem=problem or "; ".join(desired.problems),
    )


def _accepted(config: str | None, memory: LastGood) -> tuple[Cluster | None, str | None, str]:
    if config is None:
        return None, None, "no configuration yet: the stack's ConfigMap was not seen"
    try:
        return parse_canonical(config), config, ""
    except (InvalidCluster, NewerSchema) as refusal:
        problem = f"the configuration is refused, the last good one stays: {refusal}"
    if memory.config is None or memory.config == config:
        return None, None, problem
    try:
        return parse_canonical(memory.config), memory.config, problem
    except (InvalidCluster, NewerSchema):
        return None, None, problem


def _strategy(desired: DesiredNode) -> str | None:
    resources = {
        offer.resource for gpu in desired.gpus for offer in gpu.offers if offer.kind == "mig"
    }
    if not resources:
        return None
    return "mixed" if any("/mig-" in name for name in resources) else "single"
