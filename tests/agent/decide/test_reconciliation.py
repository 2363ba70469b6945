"""Decisions about a whole node."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.decide.checkpoint import Checkpoint, changing, misleading
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.reconciliation import KubeletView, Observation, decisions
from divvy.model import DesiredGpu, DesiredNode, Offer
from tests.agent.devices import gpu, snapshot

WHOLE = Offer("nvidia.com/gpu", "gpu", None, 1, False, None)
LAYOUT = DesiredGpu("GPU-0", 0, 0, None, (WHOLE,))
NODE = DesiredNode(pool="all", profile="p", source="pool", gpus=(LAYOUT,), problems=())


SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, 4, True, None)
SHARES = DesiredGpu("GPU-0", 0, 0, None, (SHARED,))
SEEN = Observation(snapshot(gpu(0)), KubeletView({}, frozenset({"GPU-0"}), fence=True), True)


def test_a_change_that_cannot_be_saved_waits() -> None:
    before = Checkpoint(applied={"GPU-0": SHARES})
    decided = decisions(DesiredState(node=NODE), SEEN, before, {}, 0.0)
    assert decided["GPU-0"].state == "Changing"
    assert misleading(before, decided) == {"GPU-0"}
    unsaved = replace(SEEN, unrecorded=frozenset({"GPU-0"}))
    waiting = decisions(DesiredState(node=NODE), unsaved, before, {}, 0.0)["GPU-0"]
    assert (waiting.advertise.layout, waiting.advertise.withheld) == (SHARES, frozenset())
    assert (waiting.state, waiting.reason) == (
        "Waiting",
        "the agent's state cannot be saved: nothing is repartitioned meanwhile",
    )
    # What was saved before the disk was full goes on: nobody will believe the old layout.
    assert misleading(replace(before, changing=("GPU-0",)), decided) == frozenset()
    assert misleading(Checkpoint(), decided) == frozenset()


def test_a_change_is_under_way_from_its_first_decision_until_its_gpu_is_ready() -> None:
    shared = Checkpoint(applied={"GPU-0": SHARES})
    begun = decisions(DesiredState(node=NODE), SEEN, shared, {}, 0.0)
    assert changing(shared, begun) == ("GPU-0",)
    marked = replace(shared, changing=("GPU-0",))
    free = replace(SEEN, kubelet=KubeletView({}, frozenset(), fence=True))
    assert changing(marked, decisions(DesiredState(node=NODE), free, marked, begun, 1.0)) == ()
    # An agent that may not decide yet, and one that sees nothing of the GPU, know no better.
    silent = replace(SEEN, kubelet="the kubelet does not answer")
    for applied in (SHARES, LAYOUT):
        noted = replace(marked, applied={"GPU-0": applied})
        blind = decisions(DesiredState(node=NODE), silent, noted, {}, 0.0)
        assert blind["GPU-0"].advertise.withheld == {"GPU-0"}
        assert changing(noted, blind) == ("GPU-0",)
    assert changing(marked, {}) == ("GPU-0",)


def test_a_lost_gpu_is_not_ready_for_an_agent_that_never_saw_it() -> None:
    lost = replace(SEEN, snapshot=snapshot(replace(gpu(0), lost=True)), kubelet="silent")
    first = decisions(DesiredState(node=NODE), lost, Checkpoint(), {}, 0.0)
    assert first["GPU-0"].provisional
    back = replace(SEEN, kubelet="silent")
    found = decisions(DesiredState(node=NODE), back, Checkpoint(), first, 1.0)["GPU-0"]
    assert found.advertise.withheld == {"GPU-0"}


def test_a_gpu_whose_plan_is_executed_is_not_advertised_by_who_forgot_the_decision() -> None:
    """The driver failed in between; the reset that MIG mode needs goes on for minutes."""
    view = KubeletView({}, frozenset(), fence=True)
    observed = Observation(snapshot(gpu(0)), view, True, applying=frozenset({"GPU-0"}))
    before = Checkpoint(applied={"GPU-0": LAYOUT})
    decided = decisions(DesiredState(node=NODE), observed, before, {}, 0.0)["GPU-0"]
    assert (decided.state, decided.apply) == ("Changing", None)
    assert decided.advertise.withheld == {"GPU-0"}
