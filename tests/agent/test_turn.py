"""One GPU's way to another layout: fence, wait, deadline, never a held device."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.holders import Holder
from divvy.agent.partition import Recut
from divvy.agent.turn import Facts, Policy, Turn, decide
from divvy.model import DesiredGpu, Offer
from tests.agent.devices import gpu

WAIT, NEVER, EVICT = Policy("wait", 600), Policy("never", 600), Policy("evict", 600)
WHOLE = Offer("nvidia.com/gpu", "gpu", None, 1, False, None)
SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, 4, True, None)
OLD = DesiredGpu("GPU-0", 0, 0, None, (WHOLE,))
NEW = DesiredGpu("GPU-0", 0, 0, None, (SHARED,))
POD = Holder("default/train", "main", "nvidia.com/gpu", "GPU-0")
IDLE = Facts(NEW, OLD, gpu(0), Recut("GPU-0"), {}, frozenset(), frozenset())
HELD = replace(IDLE, held={"GPU-0": (POD,)})
CUT = replace(IDLE, plan=Recut("GPU-0", mode=True))


def test_an_idle_gpu_is_offered_the_new_way_at_once() -> None:
    decision = decide(IDLE, None, WAIT, 0)
    assert (decision.offer, decision.withheld, decision.state) == (NEW, frozenset(), "Ready")


def test_a_held_gpu_is_withheld_until_it_is_free() -> None:
    decision = decide(HELD, None, WAIT, 0)
    assert decision.withheld == {"GPU-0"}
    assert (decision.state, decision.reason) == ("Waiting", "held by default/train")


def test_after_the_deadline_the_old_layout_is_offered_again() -> None:
    decision = decide(HELD, Turn(0), WAIT, 601)
    assert (decision.offer, decision.withheld, decision.state) == (OLD, frozenset(), "Blocked")


def test_a_blocked_change_goes_on_when_the_pod_ends() -> None:
    assert decide(IDLE, Turn(0, blocked=True), WAIT, 700).state == "Ready"


def test_never_keeps_the_old_layout_from_the_start() -> None:
    assert decide(HELD, None, NEVER, 0).offer == OLD


def test_evict_names_the_pods() -> None:
    assert decide(HELD, None, EVICT, 0).evict == ("default/train",)


def test_nothing_is_cut_while_the_kubelet_still_offers_the_devices() -> None:
    fenced = replace(CUT, allocatable=frozenset({"GPU-0"}))
    assert not decide(fenced, None, WAIT, 0).recut
    assert decide(CUT, None, WAIT, 0).recut


def test_a_process_outside_pods_stops_a_cut() -> None:
    decision = decide(replace(CUT, busy=frozenset({"GPU-0"})), None, WAIT, 0)
    assert not decision.recut
    assert "processes outside pods" in decision.reason


def test_more_replicas_of_the_same_resource_need_no_idle_gpu() -> None:
    more = replace(NEW, offers=(replace(SHARED, replicas=6),))
    tenant = Holder("default/nb", "main", "nvidia.com/gpu.shared", "GPU-0::1")
    facts = replace(IDLE, target=more, applied=NEW, held={"GPU-0": (tenant,)})
    assert decide(facts, None, WAIT, 0).offer == more
