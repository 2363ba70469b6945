"""The interval of reconciliation where nothing wakes the agent before."""

from __future__ import annotations

from collections.abc import Collection

from divvy.agent.gpu.reconciliation import Observation, under_way
from divvy.agent.gpu.transition import Decision
from divvy.model.api_names import State

CHANGING_SECONDS = 0.1
WAITING_SECONDS = 1.0
IDLE_SECONDS = 30.0
# So soon after a new list the kubelet is about to take it and to write its checkpoint.
LISTED_SECONDS = 3.0


def pause(
    decided: Collection[Decision],
    observed: Observation,
    listed: float,
    *,
    applying: bool,
    well: bool,
) -> float:
    """Return the longest pause, in seconds.

    ``listed`` is how many seconds ago a device list became another; ``applying`` says that a plan
    is being executed, ``well`` that nothing of the node is reported as a problem.
    """
    if under_way(decided) and not applying:
        changing = any(decision.state is State.CHANGING for decision in decided)
        return CHANGING_SECONDS if changing else WAITING_SECONDS
    unknown = isinstance(observed.kubelet, str)
    if unknown and listed < LISTED_SECONDS:
        return CHANGING_SECONDS
    settled = all(decision.state is State.READY for decision in decided) and not _admitting(
        observed
    )
    waiting = any(decision.ownership.asks_kubelet for decision in decided)
    calm = settled and well and not waiting and not unknown and observed.api_in_touch
    return IDLE_SECONDS if calm else WAITING_SECONDS


def _admitting(observed: Observation) -> bool:
    """Return whether the kubelet does not show yet who has what it was given."""
    held = {} if isinstance(observed.kubelet, str) else observed.kubelet.held
    return any(holder.only_allocated for holders in held.values() for holder in holders)
