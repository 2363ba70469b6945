"""The difference between a stack file and what the nodes of a cluster advertise now."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from divvy.model import Cluster, NodeFacts, Selection, hardware_model, parse_count, select_profile
from divvy.model.api_names import STATUS_ANNOTATION, State
from divvy.model.problems import printable
from divvy.model.resource_names import VENDOR
from divvy.plan.predict.prediction import predict_node
from divvy.plan.review.difference import TotalChange, resource_counts

_PCI_LABEL = "feature.node.kubernetes.io/pci-10de.present"
_ABSENT = "`overrides` names it, and the pool has no node of this name"


@dataclass(frozen=True)
class LiveNode:
    """What the API says of a node: labels, allocatable devices, the agent's status.

    ``gpus`` is how many GPUs its agent sees: an agent of a default pool runs on every node.
    ``claimable`` is how many GPUs offer each kind of device to claims; ``unavailable`` says why
    the node is not ready, and that what it advertises is of an earlier time; ``unread`` that
    nothing else is known of it.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    state: str | None
    reason: str
    gpus: int = 0
    claimable: Mapping[str, int] = field(default_factory=dict)
    unavailable: str = ""
    unread: bool = False


def unread_node(name: str) -> LiveNode:
    """Return a node of which nothing can be read but its name: it may be of any pool."""
    why = "its object in the API cannot be read: what it offers is unknown"
    return LiveNode(name, {}, {}, None, "", unavailable=why, unread=True)


def live_node(
    name: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    allocatable: Mapping[str, object],
) -> LiveNode:
    """Read what the API says of a node."""
    status = node_status(annotations)
    return LiveNode(
        name,
        dict(labels),
        device_counts(allocatable),
        None if status.get("state") is None else printable(status["state"]),
        printable(status.get("reason") or ""),
        len(status.get("gpus") or ()),
    )


def device_counts(allocatable: Mapping[str, object]) -> Mapping[str, int]:
    """Return the extended resources among a node's allocatable ones, as numbers."""
    counts = {name: parse_count(count) for name, count in allocatable.items() if "/" in name}
    return {name: count for name, count in counts.items() if count is not None}


def node_status(annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what the agent reports of its node, {} if nothing."""
    text = annotations.get(STATUS_ANNOTATION)
    if text is None:
        return {}
    try:
        status = json.loads(text)
    except (ValueError, RecursionError):
        status = None
    if not isinstance(status, dict) or not isinstance(status.get("gpus") or [], list):
        return {"state": "Unknown", "reason": f"annotation {STATUS_ANNOTATION} cannot be read"}
    return status


@dataclass(frozen=True)
class NodeDifference:
    """How one node differs: ``before`` of a resource is what it advertises, ``after`` the file's.

    What claims get is counted by the GPUs that offer it.

    ``bypass`` names the label that overrides the file; ``problem`` says why the
    node could not be compared; ``state`` is what its agent says, None if nothing;
    ``unavailable`` why the node is not ready.
    """

    node: str
    pool: str | None = None
    profile: str | None = None
    bypass: str | None = None
    problem: str = ""
    state: str | None = None
    reason: str = ""
    resources: tuple[TotalChange, ...] = ()
    unavailable: str = ""


@dataclass(frozen=True)
class PoolCount:
    """A pool that has another number of nodes than the file says."""

    pool: str
    actual: int
    expected: int


@dataclass(frozen=True)
class LiveDifference:
    """Everything in which a live cluster is not what its stack file says.

    ``unknown_overrides`` are nodes that `overrides` name and that are not in their pool.
    """

    cluster: str
    compared: int
    nodes: tuple[NodeDifference, ...]
    counts: tuple[PoolCount, ...]
    unknown_overrides: tuple[NodeDifference, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.nodes or self.counts or self.unknown_overrides)


def compare_live(cluster: Cluster, name: str, nodes: Sequence[LiveNode]) -> LiveDifference:
    """Compare a cluster's nodes with its stack file."""
    names: dict[str, set[str]] = {pool: set() for pool in cluster.pools}
    differences = []
    compared = 0
    for node in sorted(nodes, key=lambda node: node.name):
        selection = select_profile(cluster, NodeFacts(node.name, node.labels))
        if not concerns(cluster, node, selection):
            continue
        compared += 1
        if selection.pool is not None and not node.unread:
            names[selection.pool].add(node.name)
        difference = _node(cluster, node, selection)
        differs = difference.resources or difference.bypass or difference.problem
        if differs or _unwell(node):
            differences.append(difference)
    counts = tuple(
        PoolCount(key, len(names[key]), pool.hardware.count)
        for key, pool in cluster.pools.items()
        if pool.hardware is not None and pool.hardware.count != len(names[key])
    )
    absent = tuple(
        # What the file says of a node that it names, and that is not in its pool.
        NodeDifference(node, key, profile, problem=_ABSENT)
        for key, pool in cluster.pools.items()
        for node, profile in sorted(pool.overrides.items())
        if node not in names[key]
    )
    return LiveDifference(name, compared, tuple(differences), counts, absent)


def _unwell(node: LiveNode) -> bool:
    return bool(node.unavailable) or node.state not in (None, State.READY)


def concerns(cluster: Cluster, node: LiveNode, selection: Selection) -> bool:
    """Return whether the file says anything about a node; a default pool is for GPU nodes only.

    Node Feature Discovery's label tells of GPUs that no driver shows.
    """
    if node.unread:
        return True
    chosen = selection.pool is not None and cluster.pools[selection.pool].select is not None
    files = {device.resource for device in cluster.devices}
    # A resource that a node had once stays there, with 0 devices.
    offered = {
        name for name, count in offered_resources(cluster, node.allocatable).items() if count
    }
    has_gpus = bool(node.claimable) or not files.issuperset(offered)
    labelled = selection.source.startswith("label:")
    labelled = labelled or node.labels.get(_PCI_LABEL) == "true"
    return chosen or node.gpus > 0 or has_gpus or labelled


def _node(cluster: Cluster, node: LiveNode, selection: Selection) -> NodeDifference:
    if node.unread:
        return NodeDifference(node.name, unavailable=node.unavailable)
    problem = selection.problem or ""
    expected: Mapping[str, int] = {}
    hardware = cluster.pools[selection.pool].hardware if selection.pool else None
    if selection.profile is not None and hardware is None:
        problem = problem or "the stack file does not say which GPUs it has: nothing to compare"
    elif selection.profile is not None and hardware is not None:
        model = hardware_model(hardware)
        predicted = predict_node(cluster, selection.profile, model, hardware.gpus)
        expected = {
            **predicted.per_node,
            **{kind.name: kind.gpus for kind in predicted.claimable},
        }
    elif not problem and selection.pool is None:
        problem = "no pool of the stack file selects it"
    label = selection.source.partition(":")[2]
    offered = {**offered_resources(cluster, node.allocatable), **node.claimable}
    return NodeDifference(
        node=node.name,
        pool=selection.pool,
        profile=selection.profile,
        bypass=f"{label}={node.labels[label]}" if label else None,
        problem=problem,
        state=node.state,
        reason=node.reason,
        resources=() if problem else resource_counts(offered, expected),
        unavailable=node.unavailable,
    )


def offered_resources(cluster: Cluster, allocatable: Mapping[str, int]) -> Mapping[str, int]:
    """Return those allocatable resources of a node that the file speaks about."""
    named = named_resources(cluster)
    return {
        resource: number
        for resource, number in allocatable.items()
        if resource.startswith(VENDOR + "/") or resource in named
    }


def named_resources(cluster: Cluster) -> frozenset[str]:
    """Return the resources that the file names itself: of rules, and of devices' files."""
    files = {device.resource for device in cluster.devices}
    named = {
        rule.sharing.resource_name
        for profile in cluster.profiles.values()
        for rule in profile.rules
        if rule.sharing is not None and rule.sharing.resource_name is not None
    }
    return frozenset(files | named)
