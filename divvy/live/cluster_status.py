"""The state of a cluster's GPUs in one page: what is wrong on which node, and what waits for what.

The first look on call: nodes, agents, changes that wait and for whom, pods that wait, alerts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import Any

from divvy.live.live_diff import LiveDifference, LiveNode, NodeDifference, compare_live, concerns
from divvy.live.live_diff import node_status as agent_status
from divvy.live.node_conditions import is_cordoned, not_running
from divvy.live.observed_cluster import gpu_entries
from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.api_names import State
from divvy.model.phrases import plural
from divvy.model.problems import printable

_WAITING = (State.CHANGING, State.WAITING, State.BLOCKED)


@dataclass(frozen=True)
class GpuLine:
    """One GPU that is not ready: its state, and whom or what it waits for."""

    index: int
    state: str
    reason: str


@dataclass(frozen=True)
class NodeLine:
    """One node with something to look at.

    ``troubles`` are sentences, the worst first; ``status_age`` is how old the agent's status is in
    seconds if it is stale, infinite if it does not say; else None.
    """

    node: str
    pool: str | None
    troubles: tuple[str, ...]
    gpus: tuple[GpuLine, ...] = ()
    status_age: float | None = None


@dataclass(frozen=True)
class Alert:
    """A firing alert, as Prometheus tells it."""

    name: str
    summary: str
    since: str


@dataclass(frozen=True)
class PendingPod:
    """A pod that waits for a node, with the scheduler's reason."""

    name: str
    requests: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class ClusterStatus:
    """What is wrong in a cluster; ``lines`` are its nodes with trouble, dead ones first.

    ``counts`` are nodes by the state that their agents report, ``notes`` what could not be read;
    ``missing`` are pools with fewer or more nodes than the file says, and nodes that it names and
    that are not there; ``alerts`` is None if no Prometheus was asked. ``is_whole`` is False if this
    user may not read all of it: then it is not known that nothing is wrong.
    """

    cluster: str
    nodes: int
    counts: Mapping[str, int]
    lines: tuple[NodeLine, ...]
    missing: tuple[str, ...] = ()
    pending: tuple[PendingPod, ...] = ()
    alerts: tuple[Alert, ...] | None = None
    notes: tuple[str, ...] = field(default=())
    is_whole: bool = True

    @property
    def is_quiet(self) -> bool:
        """Return whether nothing of what was read is wrong."""
        return not (self.lines or self.missing or self.pending or self.alerts)

    def __bool__(self) -> bool:
        return not (self.is_quiet and self.is_whole)


def cluster_status(
    cluster: Cluster,
    name: str,
    nodes: Sequence[Mapping[str, Any]],
    live: Sequence[LiveNode],
    agents: Iterable[Mapping[str, Any]] | None,
    now: datetime,
) -> ClusterStatus:
    """Look at all nodes that concern a stack: ``nodes`` and ``live`` are the same ones.

    ``agents`` are the agents' pods, None if this user may not list them.
    """
    difference = compare_live(cluster, name, live)
    differing = {node.node: node for node in difference.nodes}
    pods = _by_node(agents) if agents is not None else None
    lines: list[NodeLine] = []
    counts: Counter[str] = Counter()
    for raw, node in sorted(zip(nodes, live, strict=True), key=lambda pair: pair[1].name):
        selection = select_profile(cluster, NodeFacts(node.name, node.labels))
        if not concerns(cluster, node, selection):
            continue
        counts[node.state or "no status"] += 1
        line = _line(raw, node, selection.pool, differing.get(node.name), pods, now)
        if line is not None:
            lines.append(line)
    # A stale status hides what else is wrong.
    lines.sort(key=lambda line: (line.status_age is None, line.node))
    return ClusterStatus(
        name,
        sum(counts.values()),
        dict(sorted(counts.items())),
        tuple(lines),
        _missing(difference),
    )


def _by_node(agents: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the agents by node; where an old one still ends, the new one counts."""
    pods = sorted(agents, key=lambda pod: not pod["metadata"].get("deletionTimestamp"))
    return {str(pod["spec"].get("nodeName") or ""): pod for pod in pods}


def _line(
    raw: Mapping[str, Any],
    node: LiveNode,
    pool: str | None,
    difference: NodeDifference | None,
    pods: Mapping[str, Mapping[str, Any]] | None,
    now: datetime,
) -> NodeLine | None:
    status = agent_status(raw["metadata"].get("annotations") or {})
    # On a node that is not ready no pod is.
    agent = "" if node.unavailable else _agent_trouble(node.name, pool, pods)
    troubles = [node.unavailable] if node.unavailable else []
    troubles += ["cordoned: the scheduler puts no pods on it"] if is_cordoned(raw) else []
    troubles += [f"agent: {agent}"] if agent else []
    gpus = tuple(_gpu_lines(status))
    if node.state not in (None, State.READY) and not gpus:
        troubles.append(f"{node.state}: {node.reason}" if node.reason else str(node.state))
    if difference is not None:
        troubles += _differences(difference)
    if not (troubles or gpus):
        return None
    # While its agent runs, a status is written at every change.
    age = _age(status, now) if node.unavailable or agent else None
    return NodeLine(node.name, pool, tuple(troubles), gpus, age)


def _agent_trouble(
    node: str, pool: str | None, pods: Mapping[str, Mapping[str, Any]] | None
) -> str:
    if pods is None or pool is None:
        return ""
    if node not in pods:
        return "no pod of it is on this node"
    return not_running(pods[node])


def _gpu_lines(status: Mapping[str, Any]) -> Iterable[GpuLine]:
    for gpu in gpu_entries(status):
        state = str(gpu.get("state") or "")
        if state not in ("", State.READY):
            yield GpuLine(gpu["index"], printable(state), printable(gpu.get("reason") or ""))


def _differences(difference: NodeDifference) -> Iterable[str]:
    if difference.bypass:
        yield f"bypasses the file: label {difference.bypass}"
    if difference.problem:
        yield difference.problem
    for row in difference.resources:
        yield f"{row.resource}: offers {row.before:,}, the file says {row.after:,}"


def _missing(difference: LiveDifference) -> tuple[str, ...]:
    counts = (
        f"pool {count.pool} has {plural(count.actual, 'node')}, the file says {count.expected}"
        for count in difference.counts
    )
    overridden = (
        f"node {node.node} of pool {node.pool}: {node.problem}"
        for node in difference.unknown_overrides
    )
    return (*counts, *overridden)


def _age(status: Mapping[str, Any], now: datetime) -> float:
    """Return how old a status is in seconds, infinite if it does not say."""
    try:
        return (now - datetime.fromisoformat(str(status.get("time")))).total_seconds()
    except (ValueError, TypeError):
        return inf


def waiting_gpus(status: ClusterStatus) -> int:
    """Return how many GPUs wait to become what the file says."""
    return sum(gpu.state in _WAITING for line in status.lines for gpu in line.gpus)
