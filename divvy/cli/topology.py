"""The topology behind a run's steps: what the nodes will advertise, and when they do."""

import time
from dataclasses import dataclass
from typing import Any

import typer
from rich.console import Console, RenderableType

from divvy.cli.errors import CommandError
from divvy.cli.live import live_nodes
from divvy.engine.urn import split_provider_reference
from divvy.engine.values import unwrapped
from divvy.engine.watcher import Summary
from divvy.model import Cluster, InvalidCluster, NewerSchema, parse_canonical
from divvy.model.contract import CONFIG_KEY, Component, State, component_of
from divvy.plan import NodeDifference, compare_live, diff, plan
from divvy.render.live import live_text
from divvy.render.terminal import difference_text, plan_text

_PATIENCE = 60.0
_PAUSE = 0.25
# A wait that takes longer is announced: `up` would seem to hang.
_SILENCE = 3.0
_DAEMON_SET = "kubernetes:apps/v1:DaemonSet"
# States of an agent that do not change by waiting a little.
_SETTLED = (State.WAITING, State.BLOCKED, State.FAILED)


def changes_topology(summary: Summary) -> bool:
    """Return whether the run changes what nodes advertise; cheap, unlike reading it."""
    return _agents_begin(summary) or any(
        _data(step.new) is not None and _data(step.old) != _data(step.new) for step in summary.steps
    )


def _agents_begin(summary: Summary) -> bool:
    """Return whether the run starts the first agents: a configuration alone offers nothing.

    A run that failed between the two leaves the ConfigMap without them.
    """
    begun = (step.new for step in summary.steps if step.old is None and step.new is not None)
    return any(
        new.type == _DAEMON_SET and component_of(new.inputs) == Component.AGENT for new in begun
    )


def configured(summary: Summary) -> tuple[Cluster | None, Cluster | None]:
    """Return the cluster value before and after a run, None if there is none.

    It is what the ConfigMap among the run's steps carries; a value that this
    version cannot read counts as none.
    """
    for step in summary.steps:
        before, after = _config(step.old), _config(step.new)
        if before is not None or after is not None:
            return before, after
    return None, None


def _config(resource: Any) -> Cluster | None:

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
    return str(data[CONFIG_KEY]) if isinstance(data, dict) and CONFIG_KEY in data else None


def topology(summary: Summary, stack: str) -> RenderableType | None:
    """Return the topology diff of a run, the whole plan for a first one, None for no change."""
    if not changes_topology(summary):
        return None

    before, after = configured(summary)
    if after is None:
        return None
    if before is None or _agents_begin(summary):
        return plan_text(plan(after, stack))
    difference = diff(plan(before, f"{stack} now"), plan(after, stack))
    return difference_text(difference) if difference else None


def _connection(summary: Summary) -> tuple[str | None, str | None]:
    """Return kubeconfig and context of the provider that the configuration went through."""
    step = next(step for step in summary.steps if _data(step.new) is not None)
    assert step.new is not None
    urn, _ = split_provider_reference(step.new.provider)
    provider = next(earlier.new for earlier in summary.steps if earlier.urn == urn)
    inputs = {} if provider is None else unwrapped(dict(provider.inputs))
    return inputs.get("kubeconfig"), inputs.get("context")


@dataclass(frozen=True)
class Advertised:
    """How a wait for the nodes ended: in words, and whether some differ from the plan."""

    words: str
    differs: bool


def wait_advertised(summary: Summary, stack: str) -> Advertised | None:
    """Wait until the nodes advertise what the plan says; None for a stack without a plan."""
    _, after = configured(summary)
    if after is None:
        return None
    kubeconfig, context = _connection(summary)
    began = time.monotonic()
    announced = False
    while True:
        looked = time.monotonic()
        difference, unknown = None, ""
        try:
            difference = compare_live(after, stack, live_nodes(after, kubeconfig, context))
        except CommandError as error:
            # Everything is applied: a busy API server does not make the run fail.
            unknown = f"the nodes cannot be compared with the plan yet: {error}"
        now = time.monotonic()
        took = now - began
        if difference is not None and not difference.nodes:
            words = f"the nodes advertise what the plan says, {took:.1f} s after the last step"
            return Advertised(words, differs=False)
        if difference is None:
            if took > _PATIENCE:
                return Advertised(unknown, differs=True)
        elif took > _PATIENCE or not any(map(_may_change, difference.nodes)):
            differs = any(map(_differs, difference.nodes))
            return Advertised(_plain(live_text(difference)), differs)
        if took > _SILENCE and not announced:
            typer.echo(
                f"waiting up to {_PATIENCE:.0f} s for nodes that differ from the plan", err=True
            )
            announced = True
        # A look at thousands of nodes keeps the API server busy, which the nodes wait for.
        time.sleep(max(_PAUSE, 2 * (now - looked)))


def _may_change(node: NodeDifference) -> bool:
    """Return whether a node's agent may still bring it to what the file says.

    That it bypasses the file, or that the file does not say what it has, does not go by waiting.
    """
    if node.unavailable or node.state in _SETTLED:
        return False
    return bool(node.resources) or node.state not in (None, State.READY)


def _differs(node: NodeDifference) -> bool:
    """Return whether a node is not what the file says; of some the file says nothing."""
    not_ready = node.unavailable or node.state not in (None, State.READY)
    return bool(node.resources or not_ready)


def _plain(view: Any) -> str:

    console = Console(width=80)
    with console.capture() as captured:
        console.print(view)
    return captured.get().rstrip()
