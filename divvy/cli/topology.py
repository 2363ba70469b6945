"""The topology behind a run's steps: what the nodes will offer, and when they do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType

    from divvy.engine.watcher import Summary
    from divvy.model import Cluster

_CONFIG_KEY = "cluster.json"
_PATIENCE = 60.0


def changes_topology(summary: Summary) -> bool:
    """Tell whether the run changes the configuration at all; cheap, unlike reading it."""
    return any(
        _data(step.new) is not None and _data(step.old) != _data(step.new) for step in summary.steps
    )


def configured(summary: Summary) -> tuple[Cluster | None, Cluster | None]:
    """Return the cluster value before and after a run, None where there is none.

    It is what the ConfigMap among the run's steps carries; a value that this
    version cannot read counts as none.
    """
    for step in summary.steps:
        before, after = _config(step.old), _config(step.new)
        if before is not None or after is not None:
            return before, after
    return None, None


def _config(resource: Any) -> Cluster | None:
    from divvy.model import InvalidCluster, NewerSchema, parse_canonical

    text = _data(resource)
    if text is None:
        return None
    try:
        return parse_canonical(text)
    except (InvalidCluster, NewerSchema):
        return None


def _data(resource: Any) -> str | None:
    inputs = {} if resource is None else resource.inputs
    data = inputs.get("data") if isinstance(inputs, dict) else None
    return str(data[_CONFIG_KEY]) if isinstance(data, dict) and _CONFIG_KEY in data else None


def topology(summary: Summary, stack: str) -> RenderableType | None:
    """Return the topology diff of a run, the whole plan for a first one, None for no change."""
    if not changes_topology(summary):
        return None
    from divvy.plan import diff, plan
    from divvy.render.terminal import difference_text, plan_text

    before, after = configured(summary)
    if after is None:
        return None
    if before is None:
        return plan_text(plan(after, stack))
    difference = diff(plan(before, f"{stack} now"), plan(after, stack))
    return difference_text(difference) if difference else None


def wait_advertised(summary: Summary, stack: str) -> str | None:
    """Wait until the nodes offer what the plan says; say how long it took, or what is missing."""
    if not summary.changes:
        return None
    from divvy.cli.live import live_nodes
    from divvy.plan import compare_live
    from divvy.render.live import live_text

    _, after = configured(summary)
    if after is None:
        return None
    began = time.monotonic()
    while True:
        difference = compare_live(after, stack, live_nodes(after))
        took = time.monotonic() - began
        if not difference.nodes:
            return f"the nodes offer what the plan says, {took:.1f} s after the last step"
        if took > _PATIENCE or all(node.state in _SETTLED for node in difference.nodes):
            return _plain(live_text(difference))
        time.sleep(0.25)


# States of an agent that do not change by waiting a little.
_SETTLED = ("Waiting", "Blocked", "Failed")


def _plain(view: Any) -> str:
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as captured:
        console.print(view)
    return captured.get().rstrip()
