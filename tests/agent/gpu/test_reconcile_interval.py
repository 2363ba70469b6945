"""How soon a node is looked at again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.reconcile_interval import (
    CHANGING_SECONDS,
    IDLE_SECONDS,
    WAITING_SECONDS,
    pause,
)
from divvy.agent.gpu.reconciliation import KubeletView, Observation
from divvy.agent.gpu.transition import Decision, Transition
from divvy.agent.plugin.inventory import AdvertisedGpu
from divvy.model import DesiredGpu, Offer
from divvy.model.api_names import State
from tests.agent.devices import gpu, snapshot

LAYOUT = DesiredGpu("GPU-0", 0, 0, None, (Offer("nvidia.com/gpu", "gpu", None),))
READY = Decision(AdvertisedGpu(LAYOUT))
TRANSITION = Transition(LAYOUT, Policy("wait", 600), 0.0)
WAITING = replace(READY, transition=TRANSITION, state=State.WAITING)
SEEN = Observation(snapshot(gpu(0)), KubeletView({}, frozenset(), fence=True), api_in_touch=True)
SILENT = replace(SEEN, kubelet="the kubelet has not written its checkpoint")
HOLDER = Holder("team/train", "main", "nvidia.com/gpu", "GPU-0")
HELD = replace(SEEN, kubelet=KubeletView({"GPU-0": (HOLDER,)}, frozenset(), fence=True))
ALLOCATED = replace(HOLDER, pod="", container="")
ADMITTING = replace(SEEN, kubelet=KubeletView({"GPU-0": (ALLOCATED,)}, frozenset(), fence=True))
LONG_AGO = 1000.0


@pytest.mark.parametrize(
    ("decision", "observed", "seconds"),
    [
        (READY, SEEN, IDLE_SECONDS),
        (READY, HELD, IDLE_SECONDS),
        (READY, ADMITTING, WAITING_SECONDS),
        (READY, SILENT, WAITING_SECONDS),
        (READY, replace(SEEN, api_in_touch=False), WAITING_SECONDS),
        (WAITING, SEEN, WAITING_SECONDS),
        (replace(WAITING, state=State.CHANGING), SEEN, CHANGING_SECONDS),
        (replace(READY, state=State.FAILED), SEEN, WAITING_SECONDS),
    ],
)
def test_reconciles_sooner_the_less_settled_a_gpu_is(
    decision: Decision, observed: Observation, seconds: float
) -> None:
    assert pause([decision], observed, LONG_AGO, applying=False, well=True) == seconds


def test_reconciles_soon_after_the_kubelet_got_a_list() -> None:
    """An agent that has started advertises nothing before it has seen a checkpoint."""
    held_back = replace(READY, state=State.WAITING, provisional=True)
    assert pause([held_back], SILENT, 0.1, applying=False, well=True) == CHANGING_SECONDS
    assert pause([held_back], SILENT, LONG_AGO, applying=False, well=True) == WAITING_SECONDS
    # Nothing is expected of it where it has told them.
    assert pause([READY], SEEN, 0.1, applying=False, well=True) == IDLE_SECONDS


def test_waits_for_the_end_of_a_plan_to_wake_it() -> None:
    changing = replace(WAITING, state=State.CHANGING)
    assert pause([changing], SEEN, LONG_AGO, applying=True, well=True) == WAITING_SECONDS


def test_retries_soon_what_does_not_work() -> None:
    assert pause([READY], SEEN, LONG_AGO, applying=False, well=False) == WAITING_SECONDS
