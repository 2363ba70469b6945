"""The state of a cluster's GPUs for the terminal and as JSON."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from math import isinf

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.live.cluster_status import ClusterStatus, NodeLine, waiting_gpus
from divvy.model.phrases import plural
from divvy.render.views.usage_words import age

_MAX_NODES, _MAX_PENDING = 20, 10


def status_text(status: ClusterStatus) -> RenderableType:
    """Return the page: the sum, nodes with trouble, pods that wait, alerts."""
    parts: list[RenderableType] = [_head(status)]
    parts += [Text(problem, style="red") for problem in status.missing]
    for line in status.lines[:_MAX_NODES]:
        parts += ["", *_node(line)]
    if (more := len(status.lines) - _MAX_NODES) > 0:
        parts += ["", Text(f"and {more:,} more nodes (-o json has all)")]
    if status.pending:
        parts += ["", *_pending(status)]
    if status.alerts:
        parts += ["", Text("firing alerts", style="bold")]
        parts += [
            Padding(Text(f"{alert.name} since {alert.since}: {alert.summary}"), (0, 0, 0, 2))
            for alert in status.alerts
        ]
    parts += [Text(f"note: {note}", style="yellow") for note in status.notes]
    return Group(*parts)


def status_json(status: ClusterStatus) -> str:
    """Return the same as JSON text."""
    document = asdict(status)
    for line in document["lines"]:
        if line["status_age"] is not None and isinf(line["status_age"]):
            line["status_age"] = "unknown"
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _head(status: ClusterStatus) -> Text:
    counts = ", ".join(f"{number:,} {state}" for state, number in status.counts.items())
    words = f": {plural(status.nodes, 'node')}" + (f" ({counts})" if counts else "")
    if waiting := waiting_gpus(status):
        words += f", {plural(waiting, 'GPU')} waiting to change"
    if status.pending:
        words += f", {plural(len(status.pending), 'pod')} pending"
    if status.alerts is not None:
        words += f", {plural(len(status.alerts), 'alert')} firing"
    seen = " in what this user may read" if status.notes else ""
    end = f"; nothing to look at{seen}" if status.is_quiet else ""
    return Text.assemble((status.cluster, "bold"), words, (end, "green"))


def _node(line: NodeLine) -> Iterable[RenderableType]:
    pool = f"pool {line.pool}" if line.pool else "in no pool"
    stale = "" if line.status_age is None else f"; {_stale(line.status_age)}"
    yield Text.assemble((f"node {line.node}", "bold"), f": {pool}{stale}")
    for trouble in line.troubles:
        yield Padding(Text(trouble), (0, 0, 0, 2))
    for gpu in line.gpus:
        yield Padding(Text(f"GPU {gpu.index} {gpu.state}: {gpu.reason}"), (0, 0, 0, 4))


def _stale(seconds: float) -> str:
    if isinf(seconds):
        return "no agent has reported from this node yet"
    return f"its status is {age(seconds)} old"


def _pending(status: ClusterStatus) -> Iterable[RenderableType]:
    yield Text("pods that wait for GPUs (divvy why POD -n NAMESPACE says more)", style="bold")
    for pod in status.pending[:_MAX_PENDING]:
        yield Padding(Text(f"{pod.name} ({', '.join(pod.requests)}): {pod.reason}"), (0, 0, 0, 2))
    if (more := len(status.pending) - _MAX_PENDING) > 0:
        yield Padding(Text(f"and {more:,} more"), (0, 0, 0, 2))
