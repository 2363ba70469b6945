"""Waits until the nodes advertise what the plan says."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType

from divvy.errors import CommandError
from divvy.live.advertised import live_nodes
from divvy.live.live_diff import NodeDifference, compare_live
from divvy.model import Cluster
from divvy.model.api_names import State
from divvy.render.views.live_diff import live_text

_PATIENCE = 60.0
_PAUSE = 0.25
# A wait that takes longer is announced: the command would seem to hang.
_SILENCE = 3.0
# States of an agent that do not change by waiting a little, unless it has just started.
_SETTLED = (State.WAITING, State.BLOCKED, State.FAILED)
_STEADY = 5.0


@dataclass(frozen=True)
class Advertised:
    """How a wait for the nodes ended: in words, and whether some differ from the plan."""

    words: str
    differs: bool


def wait_advertised(cluster: Cluster, stack: str, report: Callable[[str], None]) -> Advertised:
    """Wait until the nodes advertise what the plan says, or will not by waiting a little."""
    began = changing = time.monotonic()
    announced = False
    while True:
        looked = time.monotonic()
        difference, unknown = None, ""
        try:
            nodes = live_nodes(cluster, cluster.kubeconfig, cluster.context)
            difference = compare_live(cluster, stack, nodes)
        except CommandError as error:
            # Everything is applied: a busy API server does not make the run fail.
            unknown = f"the nodes cannot be compared with the plan yet: {error}"
        now = time.monotonic()
        took = now - began
        if difference is not None and not difference:
            return Advertised(f"the nodes advertise what the plan says, after {took:.1f} s", False)
        if difference is None:
            if took > _PATIENCE:
                return Advertised(unknown, differs=True)
        elif took > _PATIENCE or not _may_change(difference.nodes, now - changing):
            differs = any(map(_differs, difference.nodes))
            return Advertised(_plain(live_text(difference)), differs)
        if difference is not None and any(map(_is_changing, difference.nodes)):
            changing = now
        if took > _SILENCE and not announced:
            report(f"waiting up to {_PATIENCE:.0f} s for nodes that differ from the plan")
            announced = True
        # A look at thousands of nodes keeps the API server busy, which the nodes wait for.
        time.sleep(max(_PAUSE, 2 * (now - looked)))


def _may_change(nodes: Sequence[NodeDifference], steady: float) -> bool:
    """Return whether an agent may still bring its node to what the file says.

    ``steady`` is for how many seconds none has been at it.
    """
    settled = [node for node in nodes if node.state in _SETTLED and not node.unavailable]
    return any(map(_is_changing, nodes)) or (bool(settled) and steady < _STEADY)


def _is_changing(node: NodeDifference) -> bool:
    """Return whether a node's agent is at it, or is still to begin.

    That it bypasses the file, or that the file does not say what it has, does not go by waiting.
    """
    if node.unavailable or node.state in _SETTLED:
        return False
    return bool(node.resources) or node.state not in (None, State.READY)


def _differs(node: NodeDifference) -> bool:
    """Return whether a node is not what the file says; of some the file says nothing."""
    not_ready = node.unavailable or node.state not in (None, State.READY)
    return bool(node.resources or not_ready)


def _plain(view: RenderableType) -> str:
    console = Console(width=80)
    with console.capture() as captured:
        console.print(view)
    return captured.get().rstrip()
