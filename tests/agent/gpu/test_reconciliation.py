"""Decisions about a whole node."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.checkpoint import Checkpoint, changing, misleading
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.gpu.owner import ClaimsView, KubeletView, Owner
from divvy.agent.gpu.reconciliation import Observation, decisions, differing
from divvy.model import DesiredGpu, DesiredNode, Offer
from divvy.model.claims import Claims
from divvy.model.sharing import Sharing
from tests.agent.claim_values import claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance, snapshot

WHOLE = Offer("nvidia.com/gpu", "gpu", None)
LAYOUT = DesiredGpu("GPU-0", 0, 0, None, (WHOLE,))
NODE = DesiredNode(pool="all", profile="p", source="pool", gpus=(LAYOUT,), problems=())


SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, Sharing(4, one_per_container=True, weight=25))
SHARES = DesiredGpu("GPU-0", 0, 0, None, (SHARED,))
SEEN = Observation(snapshot(gpu(0)), KubeletView({}, frozenset({"GPU-0"}), fence=True), True)


def test_waits_with_a_change_that_cannot_be_saved() -> None:
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
    # What was saved before the disk was full goes on: no start will believe the old layout.
    assert misleading(replace(before, changing=("GPU-0",)), decided) == frozenset()
    assert misleading(Checkpoint(), decided) == frozenset()


def test_reports_a_change_from_its_decision_until_the_gpu_is_ready() -> None:
    shared = Checkpoint(applied={"GPU-0": SHARES})
    running = decisions(DesiredState(node=NODE), SEEN, shared, {}, 0.0)
    assert changing(shared, running) == ("GPU-0",)
    marked = replace(shared, changing=("GPU-0",))
    free = replace(SEEN, kubelet=KubeletView({}, frozenset(), fence=True))
    assert changing(marked, decisions(DesiredState(node=NODE), free, marked, running, 1.0)) == ()
    # An agent that may not decide yet, and one that sees nothing of the GPU, know no better.
    silent = replace(SEEN, kubelet="the kubelet does not answer")
    for applied in (SHARES, LAYOUT):
        noted = replace(marked, applied={"GPU-0": applied})
        blind = decisions(DesiredState(node=NODE), silent, noted, {}, 0.0)
        assert blind["GPU-0"].advertise.withheld == {"GPU-0"}
        assert changing(noted, blind) == ("GPU-0",)
    assert changing(marked, {}) == ("GPU-0",)


def test_keeps_a_lost_gpu_unready_for_an_agent_that_never_saw_it() -> None:
    lost = replace(SEEN, snapshot=snapshot(replace(gpu(0), lost=True)), kubelet="silent")
    first = decisions(DesiredState(node=NODE), lost, Checkpoint(), {}, 0.0)
    assert first["GPU-0"].provisional
    back = replace(SEEN, kubelet="silent")
    decision = decisions(DesiredState(node=NODE), back, Checkpoint(), first, 1.0)["GPU-0"]
    assert decision.advertise.withheld == {"GPU-0"}


def test_withholds_a_gpu_under_an_executed_plan_after_a_forgotten_decision() -> None:
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


def test_leaves_the_instances_of_claims_alone() -> None:
    claimed = replace(FREE, claims=ClaimsView(claim_record(offered_gpu())))
    for applied, observed in (({}, FREE), ({"GPU-0": CLAIMED}, FREE), ({"GPU-0": SHARES}, claimed)):
        decided = decisions(BY_CLAIMS, observed, Checkpoint(applied=applied), {}, 0.0)["GPU-0"]
        assert (decided.state, decided.apply) == ("Ready", None)


def test_removes_the_device_plugins_instances_before_claims_come() -> None:
    plugin = Checkpoint(applied={"GPU-0": replace(LAYOUT, mig={"2g.10gb": 1})})
    decided = decisions(BY_CLAIMS, FREE, plugin, {}, 0.0)["GPU-0"]
    assert decided.apply == MigPlan("GPU-0", destroy=TWO.instances, mode=False)
    pod = Holder("team/pod", "main", "nvidia.com/mig-2g.10gb", "MIG-1", "uid")
    kept = replace(FREE, kubelet=KubeletView({"MIG-1": (pod,)}, frozenset(), fence=True))
    decided = decisions(BY_CLAIMS, kept, plugin, {}, 0.0)["GPU-0"]
    assert (decided.state, decided.reason) == ("Waiting", "held by team/pod")


def test_waits_for_claims_before_the_device_plugin_gets_a_gpu() -> None:
    """Whoever may be allocated it holds it: one that is in the slices, and not yet allocated."""
    before = Checkpoint(applied={"GPU-0": CLAIMED})
    free = replace(FREE, snapshot=snapshot(gpu(0)))
    offered = offered_gpu()
    prepared = claim("pod", held(offered, "-share"))
    for record in (claim_record(offered, claims=(prepared,)), claim_record(offered)):
        held_by_claims = replace(free, claims=ClaimsView(record))
        decided = decisions(DesiredState(node=NODE), held_by_claims, before, {}, 0.0)["GPU-0"]
        assert (decided.state, decided.apply) == ("Waiting", None)
        assert "GPU-0" in decided.advertise.withheld
    assert decisions(DesiredState(node=NODE), free, before, {}, 0.0)["GPU-0"].state == "Ready"


def test_states_who_owns_each_gpu() -> None:
    offered = offered_gpu(0, {})
    claimed = replace(FREE, claims=ClaimsView(claim_record(offered)))
    seen = Checkpoint(applied={"GPU-0": CLAIMED})
    decided = decisions(BY_CLAIMS, claimed, seen, {}, 0.0)["GPU-0"]
    assert decided.ownership.line == "claims"
    given = decisions(DesiredState(node=NODE), claimed, seen, {}, 0.0)["GPU-0"]
    assert given.ownership.line == "claims (waiting for claims that were just allocated)"
    assert given.reason == "held by claims that were just allocated"
    plugins = decisions(DesiredState(node=NODE), SEEN, Checkpoint(), {}, 0.0)["GPU-0"]
    assert plugins.ownership.owner is Owner.PLUGIN


def test_moves_the_gpus_of_a_node_to_claims_together() -> None:
    """One that went ahead would serve no pod: claims get the node when its last pod has ended."""
    other = replace(LAYOUT, uuid="GPU-1", index=1)
    claimed = replace(NODE, gpus=(CLAIMED, replace(CLAIMED, uuid="GPU-1", index=1)))
    desired = DesiredState(node=claimed, policy=Policy("wait", 60.0))
    plugin = Checkpoint(applied={"GPU-0": LAYOUT, "GPU-1": other})
    pod = Holder("team/pod", "main", "nvidia.com/gpu", "GPU-0", "uid")
    kubelet = KubeletView({"GPU-0": (pod,)}, frozenset(), fence=True)
    held_one = Observation(snapshot(gpu(0), gpu(1)), kubelet, True)
    first = decisions(desired, held_one, plugin, {}, 0.0)
    for decision in first.values():
        assert (decision.state, decision.reason) == ("Waiting", "held by team/pod")
        assert decision.advertise.withheld == {decision.advertise.layout.uuid}
    late = decisions(desired, held_one, plugin, first, 60.0)
    assert late["GPU-1"].state == "Blocked"
    assert (late["GPU-1"].advertise.layout, late["GPU-1"].advertise.withheld) == (other, set())
    free = replace(held_one, kubelet=replace(kubelet, held={}))
    withdrawn = decisions(desired, free, plugin, late, 61.0)
    assert {decision.state for decision in withdrawn.values()} == {"Changing"}
    moved = decisions(desired, free, plugin, withdrawn, 62.0)
    assert {decision.state for decision in moved.values()} == {"Ready"}


def test_moves_a_gpu_to_claims_only_after_the_kubelet_withdrew_it() -> None:
    """A pod that it admits until then would find the other GPUs given up."""
    plugin = Checkpoint(applied={"GPU-0": LAYOUT})
    decided = decisions(BY_CLAIMS, SEEN, plugin, {}, 0.0)["GPU-0"]
    assert (decided.state, decided.reason) == (
        "Changing",
        "waiting for the kubelet to withdraw the old devices",
    )


def test_asks_who_uses_a_gpu_only_when_its_layout_differs() -> None:
    """The answer is needed before the one plan is made."""
    two = DesiredGpu("GPU-0", 0, 0, {"2g.10gb": 1}, ())

    def pauses(layout: DesiredGpu, seen: Observation) -> list[str]:
        desired = DesiredState(node=replace(NODE, gpus=(layout,)))
        return [gpu.uuid for gpu in differing(desired, seen.snapshot, seen.claims)]

    assert pauses(two, FREE) == []
    assert pauses(LAYOUT, FREE) == ["GPU-0"]
    assert pauses(replace(two, mig={"2g.10gb": 2}), FREE) == ["GPU-0"]
    assert pauses(LAYOUT, SEEN) == []
    assert pauses(two, SEEN) == ["GPU-0"]
    pending = replace(SEEN, snapshot=snapshot(replace(gpu(0), mig_pending=True)))
    assert pauses(LAYOUT, pending) == ["GPU-0"]
    lost = replace(FREE, snapshot=snapshot(replace(TWO, lost=True)))
    assert pauses(LAYOUT, lost) == []
    claimed = replace(FREE, claims=ClaimsView(claim_record(offered_gpu())))
    assert pauses(LAYOUT, claimed) == []
