"""One GPU's way to another layout: fence, wait, deadline, never a held device."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.device_id import device_ids
from divvy.agent.gpu.holders import Holder, on_gpu
from divvy.agent.gpu.mig_plan import CannotPartition, MigPlan, plan_mig, try_plan_mig
from divvy.agent.gpu.owner import WITHDRAWING
from divvy.agent.gpu.transition import (
    Decision,
    Facts,
    Failure,
    Transition,
    decide,
)
from divvy.agent.plugin.inventory import AdvertisedGpu, offers_by_uuid
from divvy.model import DesiredGpu, Offer, gpu_model, mig_resource
from divvy.model.sharing import Sharing
from divvy.plan import diff
from tests.agent.devices import A100, gpu, instance
from tests.plan.stacks import planned, pool

WAIT, NEVER, EVICT = Policy("wait", 600), Policy("never", 600), Policy("evict", 600)
WHOLE = Offer("nvidia.com/gpu", "gpu", None)
SHARED = Offer("nvidia.com/gpu.shared", "gpu", None, Sharing(4, one_per_container=True, weight=25))
OLD = DesiredGpu("GPU-0", 0, 0, None, (WHOLE,))
NEW = DesiredGpu("GPU-0", 0, 0, None, (SHARED,))
POD = Holder("default/train", "main", "nvidia.com/gpu", "GPU-0", "uid-1")
IDLE = Facts(NEW, OLD, gpu(0), MigPlan("GPU-0"), {})
HELD = replace(IDLE, held={"GPU-0": (POD,)})
MODE = replace(IDLE, plan=MigPlan("GPU-0", mode=True))


def since(when: float, policy: Policy = WAIT, *, blocked: bool = False) -> Decision:
    return Decision(AdvertisedGpu(OLD), transition=Transition(NEW, policy, when, blocked))


def offered(profile: object) -> DesiredGpu:
    """Return GPU 0 as a plan says that a profile offers it."""
    (pool_plan,) = planned({"p": profile}, main=pool("p")).pools
    assert pool_plan.node is not None
    return DesiredGpu("GPU-0", 0, 0, None, pool_plan.node.gpus[0].offers)


def holder_of(desired: DesiredGpu) -> Holder:
    (offer,) = desired.offers
    first = next(iter(device_ids("GPU-0", offer.sharing.replicas, by_mps=offer.sharing.by_mps)))
    return Holder("default/train", "main", offer.resource, first, "uid-1")


def mig_layout(layout: dict[str, int]) -> DesiredGpu:
    offers = tuple(Offer(mig_resource(name), "mig", name) for name in layout)
    return DesiredGpu("GPU-0", 0, 0, layout, offers)


def test_repartitions_an_idle_gpu_at_once() -> None:
    decision = decide(IDLE, None, WAIT, 0)
    assert (decision.advertise, decision.state) == (AdvertisedGpu(NEW), "Ready")


WAYS: list[object] = [
    {},
    *({"timeSlicing": {"replicas": number}} for number in (2, 8)),
    {"timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "3000Mi", "action": "prevent"}}},
    {"timeSlicing": {"replicas": 4, "renameByDefault": False}},
    {"timeSlicing": {"replicas": 4, "resourceName": "team"}},
    {"mps": {"replicas": 4}},
]


@pytest.mark.parametrize(("before", "after"), [*permutations(range(len(WAYS)), 2)])
def test_evicts_where_the_diff_says_that_gpus_must_be_idle(before: int, after: int) -> None:
    was, becomes = offered(WAYS[before]), offered(WAYS[after])
    held = {"GPU-0": (holder_of(was),)}
    decision = decide(Facts(becomes, was, gpu(0), MigPlan("GPU-0"), held), None, EVICT, 0)
    sides = (planned({"p": WAYS[side]}, main=pool("p")) for side in (before, after))
    (change,) = diff(*sides).changes
    must_be_idle = change.disruption.level == "GPUs must be idle"
    assert bool(decision.evict) == must_be_idle


def test_advertises_a_new_name_after_the_kubelet_released_the_old() -> None:
    listed = replace(IDLE, allocatable={"GPU-0"})
    assert decide(listed, None, WAIT, 0).advertise.withheld == {"GPU-0"}
    unsent = replace(IDLE, fence=False)
    assert decide(unsent, None, WAIT, 0).state == "Changing"


def test_withholds_a_held_gpu_until_it_is_free() -> None:
    decision = decide(HELD, None, WAIT, 0)
    assert decision.advertise.withheld == {"GPU-0"}
    assert (decision.state, decision.reason) == ("Waiting", "held by default/train")


def test_advertises_the_old_layout_again_after_the_deadline() -> None:
    decision = decide(HELD, since(0), WAIT, 601)
    assert (decision.advertise, decision.state) == (AdvertisedGpu(OLD), "Blocked")


def test_counts_the_deadline_from_the_first_look_on() -> None:
    waiting = decide(HELD, None, WAIT, 0)
    waiting = decide(HELD, waiting, WAIT, 500)
    assert decide(HELD, waiting, WAIT, 599).state == "Waiting"
    assert decide(HELD, waiting, WAIT, 600).state == "Blocked"


def test_gives_a_resumed_change_a_new_deadline() -> None:
    """Another pod was allocated the device before the kubelet had withdrawn it."""
    resumed = decide(IDLE, since(0, blocked=True), WAIT, 700)
    assert decide(HELD, resumed, WAIT, 701).state == "Waiting"
    assert decide(HELD, resumed, WAIT, 1300).state == "Blocked"


def test_resumes_a_blocked_change_when_the_pod_ends() -> None:
    withdrawn = decide(IDLE, since(0, blocked=True), WAIT, 700)
    assert withdrawn.advertise.withheld == {"GPU-0"}
    assert decide(IDLE, withdrawn, WAIT, 701).state == "Ready"


def test_gives_another_policy_or_target_a_new_deadline() -> None:
    """`Blocked`, then `change.policy: evict`: the remedy that the documents name."""
    assert decide(HELD, since(0, blocked=True), WAIT, 700).state == "Blocked"
    withdrawn = decide(HELD, since(0, blocked=True), EVICT, 700)
    assert decide(HELD, withdrawn, EVICT, 701).evict == (("default/train", "uid-1"),)
    other = replace(HELD, target=replace(NEW, offers=(replace(SHARED, sharing=Sharing(2)),)))
    assert decide(other, since(0, blocked=True), WAIT, 700).state == "Waiting"


def test_does_not_wait_for_a_holder_that_fits_the_new_layout() -> None:
    """The agent crashed before it saved that the new layout is advertised."""
    tenant = Holder("default/nb", "main", "nvidia.com/gpu.shared", "GPU-0::1", "uid-2")
    facts = replace(IDLE, held={"GPU-0": (tenant,)})
    assert decide(facts, None, NEVER, 0).advertise == AdvertisedGpu(NEW)
    both = replace(IDLE, held={"GPU-0": (POD, tenant)})
    assert decide(both, None, EVICT, 0).evict == (("default/train", "uid-1"),)


def test_withholds_devices_held_under_another_layout() -> None:
    tenant = Holder("default/nb", "main", "nvidia.com/gpu.shared", "GPU-0::1", "uid-2")
    shared = {"GPU-0": (tenant,)}
    other = replace(NEW, offers=(replace(SHARED, resource="nvidia.com/gpu.team"),))
    blocked = replace(IDLE, target=other, held=shared)
    assert decide(blocked, None, NEVER, 0).advertise.withheld == {"GPU-0"}
    refused = replace(IDLE, plan=CannotPartition("no"), held=shared)
    assert decide(refused, None, WAIT, 0).advertise.withheld == {"GPU-0"}
    silent = replace(IDLE, hold="the API server does not answer", held=shared)
    assert decide(silent, None, WAIT, 0).advertise.withheld == {"GPU-0"}
    assert decide(silent, decide(IDLE, None, WAIT, 0), WAIT, 0).state == "Waiting"
    settled = replace(IDLE, applied=other, target=other, held=shared)
    assert decide(settled, None, WAIT, 0).state == "Waiting"


def test_distinguishes_shares_from_whole_devices_of_one_name() -> None:
    """`renameByDefault: false`."""
    shares = replace(NEW, offers=(replace(WHOLE, sharing=Sharing(2)),))
    exclusive = decide(replace(HELD, target=shares), None, WAIT, 0)
    assert (exclusive.state, exclusive.advertise.withheld) == ("Waiting", {"GPU-0"})
    tenant = Holder("default/nb", "main", "nvidia.com/gpu", "GPU-0::1", "uid-2")
    back = replace(IDLE, target=OLD, applied=shares, held={"GPU-0": (tenant,)})
    assert decide(back, None, WAIT, 0).state == "Waiting"
    assert decide(replace(IDLE, target=shares, allocatable={"GPU-0"}), None, WAIT, 0).state == (
        "Changing"
    )


def test_fits_a_thousand_tenants_into_the_status() -> None:
    pods = tuple(
        Holder(f"team/{'n' * 250}{n}", "main", "nvidia.com/gpu", "GPU-0", f"uid-{n}")
        for n in range(1000)
    )
    decision = decide(replace(IDLE, held={"GPU-0": pods}), None, EVICT, 0)
    assert len(decision.reason) < 4096
    assert decision.reason.endswith(", 990 more")
    assert len(decision.evict) == 1000


def test_keeps_the_old_layout_from_the_start_with_policy_never() -> None:
    assert decide(HELD, None, NEVER, 0).advertise.layout == OLD


def test_names_the_pods_to_evict_with_their_uids() -> None:
    assert decide(HELD, None, EVICT, 0).evict == (("default/train", "uid-1"),)
    unnamed = replace(HELD, held={"GPU-0": (replace(POD, pod=""),)})
    assert decide(unnamed, None, EVICT, 0).evict == ()


def test_withdraws_an_unhealthy_device_before_a_change() -> None:
    """While it is listed, the kubelet allocates it as soon as it is well."""
    before = decide(replace(IDLE, target=OLD), None, WAIT, 0)
    assert before.advertise == AdvertisedGpu(OLD)
    for facts in (IDLE, MODE):
        decision = decide(facts, before, WAIT, 0)
        assert (decision.state, decision.apply) == ("Changing", None)
        assert decision.advertise.withheld == {"GPU-0"}
        decision = decide(facts, decision, WAIT, 0)
        assert decision.state == "Ready" or decision.apply is not None


def test_repartitions_nothing_while_the_kubelet_would_allocate_it() -> None:
    assert decide(replace(MODE, allocatable={"GPU-0"}), None, WAIT, 0).apply is None
    assert decide(replace(MODE, fence=False), None, WAIT, 0).apply is None
    assert decide(MODE, None, WAIT, 0).apply == MODE.plan


def test_stops_a_change_for_a_process_outside_pods() -> None:
    decision = decide(replace(MODE, busy=frozenset({"GPU-0"})), None, WAIT, 0)
    assert decision.apply is None
    assert "processes outside pods" in decision.reason


def test_waits_for_no_process_on_a_device_that_stays() -> None:
    stays, goes = instance(1, 9, 0, 4), instance(2, 14, 4, 2)
    layout = mig_layout({"3g.20gb": 1})
    board = gpu(0, mig=True, instances=(stays, goes))
    facts = Facts(layout, layout, board, plan_mig(board, layout.mig), {})
    busy = replace(facts, busy=frozenset({str(stays.uuid)}))
    decision = decide(busy, decide(busy, None, WAIT, 0), WAIT, 1)
    assert decision.apply is not None
    assert decide(replace(facts, busy=frozenset({str(goes.uuid)})), None, WAIT, 0).apply is None


def test_adds_replicas_of_a_resource_on_a_held_gpu() -> None:
    more = replace(NEW, offers=(replace(SHARED, sharing=Sharing(6)),))
    tenant = Holder("default/nb", "main", "nvidia.com/gpu.shared", "GPU-0::1")
    facts = replace(IDLE, target=more, applied=NEW, held={"GPU-0": (tenant,)})
    assert decide(facts, None, WAIT, 0).advertise.layout == more


def test_changes_nothing_while_on_hold() -> None:
    silent = replace(MODE, hold="the kubelet does not answer")
    fresh = decide(silent, None, WAIT, 0)
    assert (fresh.advertise.layout, fresh.apply, fresh.state) == (OLD, None, "Waiting")
    waiting = decide(HELD, None, WAIT, 0)
    held_up = decide(replace(HELD, held={}, hold="the kubelet does not answer"), waiting, WAIT, 5)
    assert held_up.advertise == waiting.advertise
    assert held_up.transition == waiting.transition


def test_withholds_a_new_gpu_while_its_holders_are_unknown() -> None:
    first = replace(IDLE, applied=None, hold="the kubelet does not answer")
    assert decide(first, None, WAIT, 0).advertise.withheld == {"GPU-0"}


def test_advertises_no_old_layout_at_start_before_it_knows_the_holders() -> None:
    """The disk was full: what it remembers may not be what was advertised last."""
    unknown = replace(IDLE, hold="the kubelet does not answer", holders_known=False)
    blind = decide(unknown, None, WAIT, 0)
    assert (blind.advertise.layout, blind.advertise.withheld) == (OLD, {"GPU-0"})
    # The API is silent still: the old layout again, less what is held otherwise.
    silent = replace(IDLE, hold="the API server does not answer")
    assert decide(silent, blind, WAIT, 0).advertise == AdvertisedGpu(OLD)
    # Later on, what is advertised stays so.
    ready = Decision(AdvertisedGpu(OLD))
    assert decide(unknown, ready, WAIT, 0).advertise == AdvertisedGpu(OLD)


def test_leaves_a_correct_gpu_alone_while_on_hold() -> None:
    right = replace(IDLE, applied=NEW, hold="the kubelet does not answer")
    assert decide(right, None, WAIT, 0) == Decision(AdvertisedGpu(NEW))


def test_distrusts_a_saved_decision_while_holders_are_unknown() -> None:
    """The change went on, could not be saved, and was taken back: a pod may hold a share."""
    blind = replace(IDLE, target=OLD, hold="the kubelet does not answer", holders_known=False)
    stale = replace(blind, changing=True)
    assert decide(blind, None, WAIT, 0) == Decision(AdvertisedGpu(OLD))
    first = decide(stale, None, WAIT, 0)
    assert (first.advertise.withheld, first.state) == ({"GPU-0"}, "Waiting")
    assert decide(stale, first, WAIT, 1).advertise.withheld == {"GPU-0"}
    refused = replace(stale, plan=CannotPartition("no"))
    assert decide(refused, None, WAIT, 0).advertise.withheld == {"GPU-0"}


def test_remembers_holders_of_an_old_layout_when_the_kubelet_falls_silent() -> None:
    tenant = Holder("default/nb", "main", "nvidia.com/gpu.shared", "GPU-0::1", "uid-2")
    known = replace(IDLE, target=OLD, held={"GPU-0": (tenant,)})
    waiting = decide(known, None, WAIT, 0)
    assert (waiting.advertise.withheld, waiting.state) == ({"GPU-0"}, "Waiting")
    silent = replace(known, held={}, hold="the kubelet does not answer", holders_known=False)
    assert decide(silent, waiting, WAIT, 1).advertise.withheld == {"GPU-0"}
    refused = replace(silent, plan=CannotPartition("no"))
    assert decide(refused, waiting, WAIT, 1).advertise.withheld == {"GPU-0"}


def test_retries_later_what_the_driver_refused() -> None:
    assert isinstance(MODE.plan, MigPlan)
    failed = replace(MODE, failure=Failure(MODE.plan, "In use by another client", 0))
    soon, later = decide(failed, None, WAIT, 1), decide(failed, None, WAIT, 11)
    assert (soon.state, soon.reason, soon.apply) == ("Failed", "In use by another client", None)
    assert later.apply == MODE.plan


# The review's two scenarios (architecture.md 4.1): which instances stay was decided three times.


def test_executes_the_plan_it_decided_on() -> None:
    free, held = instance(3, 14, 0, 2), instance(13, 19, 6, 1)  # 2g.10gb at 0, 1g.5gb at 6
    layout = mig_layout({"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1})
    board = gpu(0, mig=True, instances=(free, held))
    notebook = Holder("team/notebook", "main", "nvidia.com/mig-1g.5gb", str(held.uuid))
    facts = Facts(
        layout,
        layout,
        board,
        plan_mig(board, layout.mig, {str(held.uuid)}),
        {notebook.device_id: (notebook,)},
    )
    decision = decide(facts, None, WAIT, 0)
    assert decision.apply is not None
    assert decision.apply.destroy == (free,)
    assert decision.advertise.withheld == {free.uuid}
    assert held.uuid in decision.advertise.instances


def test_neither_awaits_nor_evicts_a_holder_that_need_not_move() -> None:
    instances = tuple(instance(7 + n, 19, n, 1) for n in range(3))
    held = instances[2]
    layout = mig_layout({"1g.5gb": 2})
    board = gpu(0, mig=True, instances=instances)
    pod = Holder("team/notebook", "main", "nvidia.com/mig-1g.5gb", str(held.uuid), "uid")
    facts = Facts(
        layout,
        layout,
        board,
        plan_mig(board, layout.mig, {str(held.uuid)}),
        {pod.device_id: (pod,)},
    )
    decision = decide(facts, None, EVICT, 0)
    assert (decision.in_the_way, decision.evict) == ((), ())
    assert decision.apply is not None
    assert held not in decision.apply.destroy
    assert held.uuid in offers_by_uuid(decision.advertise, board)


def test_waits_for_the_holder_of_any_part_of_a_split_instance() -> None:
    split = replace(instance(1, 9, 0, 4), others=("MIG-other",))
    layout = mig_layout({"3g.20gb": 1})
    board = gpu(0, mig=True, instances=(split,))
    pod = Holder("team/notebook", "main", "nvidia.com/mig-3g.20gb", "MIG-other", "uid")
    held = on_gpu(board, {"MIG-other": (pod,)})
    decision = decide(
        Facts(layout, layout, board, plan_mig(board, layout.mig), held), None, WAIT, 0
    )
    assert (decision.state, decision.in_the_way) == ("Waiting", (pod,))
    assert decision.apply is None
    listed = Facts(
        layout, layout, board, plan_mig(board, layout.mig), {}, allocatable={"MIG-other"}
    )
    assert decide(listed, None, WAIT, 0).reason == WITHDRAWING


MODEL = gpu_model("A100-SXM4-40GB")
assert MODEL.mig is not None
PROFILES = {p.name: p for p in MODEL.mig.profiles if "+" not in p.name}
LAYOUTS = [
    {"1g.5gb": 7},
    {"1g.5gb": 2},
    {"3g.20gb": 2},
    {"2g.10gb": 3, "1g.5gb": 1},
    {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2},
    {"4g.20gb": 1, "1g.5gb": 3},
    {"7g.40gb": 1},
    {"3g.20gb": 1},
]


@given(
    have=st.sampled_from(LAYOUTS),
    want=st.sampled_from(LAYOUTS),
    gone=st.sets(st.integers(0, 6)),
    held=st.sets(st.integers(0, 6)),
    policy=st.sampled_from([WAIT, NEVER, EVICT]),
)
def test_executes_nothing_that_touches_a_held_device(
    have: dict[str, int], want: dict[str, int], gone: set[int], held: set[int], policy: Policy
) -> None:
    placements = plan_mig(gpu(0, mig=True), have).create
    instances = tuple(
        instance(10 + number, PROFILES[p.profile].profile_id, p.start, p.size)
        for number, p in enumerate(placements)
        if number not in gone
    )
    board = gpu(0, mig=True, instances=instances)
    names = {p.profile_id: p.name for p in PROFILES.values()}
    holders = {
        str(i.uuid): (
            Holder(f"t/{i.gi}", "main", mig_resource(names[i.profile_id]), str(i.uuid), "uid"),
        )
        for i in instances
        if i.gi - 10 in held
    }
    plan = try_plan_mig(board, want, holders)
    facts = Facts(mig_layout(want), mig_layout(have), board, plan, holders)
    decision = decide(facts, None, policy, 0)
    if decision.apply is not None:
        assert not {i.uuid for i in decision.apply.destroy} & holders.keys()
        assert decision.apply == plan
        after = [names[i.profile_id] for i in decision.apply.keep]
        after += [p.profile for p in decision.apply.create]
        assert {name: after.count(name) for name in set(after)} == want
    # Evicted is only who holds what must go.
    assert isinstance(plan, MigPlan)
    evicted = {pod for pod, _ in decision.evict}
    assert evicted <= {h.pod for uuid in plan.idle for h in holders.get(uuid, ())}
    assert not decision.advertise.withheld - plan.idle
    # Who could stay, stays: no other choice of instances keeps more of the held ones.
    kept = sum(i.uuid in holders for i in plan.keep)
    for count in range(kept + 1, len(holders) + 1):
        for group in combinations([i for i in instances if i.uuid in holders], count):
            alone = try_plan_mig(replace(board, instances=group), want, holders)
            assert not isinstance(alone, MigPlan) or len(alone.keep) < count


def test_uses_the_intended_gpu_model_in_these_tests() -> None:
    assert MODEL.product == A100
