"""Decisions about a whole node."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.decide.checkpoint import Checkpoint, changing, misleading
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.holders import Holder
from divvy.agent.decide.mig_plan import MigPlan
from divvy.agent.decide.reconciliation import KubeletView, Observation, decisions
from divvy.model import DesiredGpu, DesiredNode, Offer
from divvy.model.claims import Claims
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, instance, snapshot

WHOLE = Offer("nvidia.com/gpu", "gpu", None)
LAYOUT = DesiredGpu("GPU-0", 0, 0, None, (WHOLE,))
NODE = DesiredNode(pool="all", profile="p", source="pool", gpus=(LAYOUT,), problems=())


SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, Sharing(4, one_per_container=True, weight=25))
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
        "the agent's state cannot be saved: no repartitioning until it can be saved",
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


CLAIMED = DesiredGpu("GPU-0", 0, 0, None, (), Claims())
BY_CLAIMS = DesiredState(node=replace(NODE, gpus=(CLAIMED,)))
TWO = gpu(0, mig=True, instances=(instance(1, 14, 2, 2),))
FREE = Observation(snapshot(TWO), KubeletView({}, frozenset(), fence=True), True)


def test_the_instances_of_claims_are_left_to_them() -> None:
    claimed = replace(FREE, claimed={"GPU-0": ()})
    for applied, observed in (({}, FREE), ({"GPU-0": CLAIMED}, FREE), ({"GPU-0": SHARES}, claimed)):
        decided = decisions(BY_CLAIMS, observed, Checkpoint(applied=applied), {}, 0.0)["GPU-0"]
        assert (decided.state, decided.apply) == ("Ready", None)


def test_what_the_device_plugin_has_made_goes_before_claims_come() -> None:
    plugin = Checkpoint(applied={"GPU-0": replace(LAYOUT, mig={"2g.10gb": 1})})
    decided = decisions(BY_CLAIMS, FREE, plugin, {}, 0.0)["GPU-0"]
    assert decided.apply == MigPlan("GPU-0", destroy=TWO.instances, mode=False)
    pod = Holder("team/pod", "main", "nvidia.com/mig-2g.10gb", "MIG-1", "uid")
    held = replace(FREE, kubelet=KubeletView({"MIG-1": (pod,)}, frozenset(), fence=True))
    decided = decisions(BY_CLAIMS, held, plugin, {}, 0.0)["GPU-0"]
    assert (decided.state, decided.reason) == ("Waiting", "held by team/pod")


def test_the_device_plugin_waits_for_who_holds_a_gpu_by_claims() -> None:
    """Whoever may be allocated it holds it: one that is in the slices, and nobody has yet."""
    before = Checkpoint(applied={"GPU-0": CLAIMED})
    free = replace(FREE, snapshot=snapshot(gpu(0)))
    pod = Holder("team/pod", "", "", "claim:uid", "pod-uid")
    for holder in (pod, Holder("", "", "", "GPU-0")):
        held = replace(free, claimed={"GPU-0": (holder,)})
        decided = decisions(DesiredState(node=NODE), held, before, {}, 0.0)["GPU-0"]
        assert (decided.state, decided.apply) == ("Waiting", None)
        assert "GPU-0" in decided.advertise.withheld
    assert decisions(DesiredState(node=NODE), free, before, {}, 0.0)["GPU-0"].state == "Ready"
