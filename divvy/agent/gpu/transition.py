"""The transition of one GPU from the layout it has to the desired one: one decision at a time.

The fence: devices that are repartitioned are withdrawn first; only when the kubelet has taken the
new list, no longer allocates them, and no pod holds them, are they touched. What pods hold stays
theirs; until a deadline the agent waits (or evicts), then the old layout is advertised again and
the node says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.device_id import is_client, is_share, physical
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Held, Holder, bounded_names
from divvy.agent.gpu.mig_plan import CannotPartition, MigPlan, remaining_uuids_of
from divvy.agent.gpu.move_to_claims import MoveToClaims
from divvy.agent.gpu.owner import WITHDRAWING, Ownership
from divvy.agent.plugin.inventory import AdvertisedGpu, offers_by_uuid
from divvy.model import DesiredGpu, Offer
from divvy.model.api_names import State

_RETRY_SECONDS = 10.0
ENDING_MPS = "its MPS daemon is being ended"


@dataclass(frozen=True)
class Failure:
    """A plan that the driver refused to carry out: which, why and when."""

    plan: MigPlan
    reason: str
    when: float


@dataclass(frozen=True)
class Transition:
    """A change under way: to what and by which policy, since when, and whether its deadline passed.

    Another target or policy is another change, with a deadline of its own.
    """

    target: DesiredGpu
    policy: Policy
    since: float
    blocked: bool = False


@dataclass(frozen=True)
class Facts:
    """What the decision about one GPU rests on.

    ``target`` is the desired layout, ``applied`` what was advertised last (None on first sight);
    ``plan`` the way to the target, or why it cannot be reached; ``held`` maps UUIDs of this GPU and
    its MIG devices to their holders; ``busy`` are UUIDs with processes on them that no pod accounts
    for; ``allocatable`` are the IDs the kubelet would allocate now, and ``fence`` whether it has
    taken every list of ours. ``hold`` says why nothing may change now, "" if it may;
    ``holders_known`` is False where ``held`` is only not known. ``changing`` tells that ``applied``
    was noted before a change: the GPU may be advertised otherwise now. ``has_daemon``: the
    GPU has an MPS daemon, or the compute mode that was set for one. Of one that goes to claims,
    ``move`` is the move of its node, and ``elsewhere`` are holders of the node's other GPUs, by
    UUID, without whose end no claim gets this one; ``committed``: other GPUs cannot go back to
    the device plugin, so this one is not advertised by it again.
    """

    target: DesiredGpu
    applied: DesiredGpu | None
    gpu: Gpu
    plan: MigPlan | CannotPartition
    held: Held
    busy: Collection[str] = frozenset()
    allocatable: Collection[str] = frozenset()
    fence: bool = True
    hold: str = ""
    holders_known: bool = True
    changing: bool = False
    failure: Failure | None = None
    has_daemon: bool = False
    elsewhere: Held = field(default_factory=dict)
    move: MoveToClaims | None = None
    committed: bool = False


@dataclass(frozen=True)
class Decision:
    """What to do about one GPU now.

    ``apply`` is the plan to be executed, as it is; ``evict`` names pods to evict, with their UIDs;
    ``state`` is Ready, Changing, Waiting, Blocked or Failed, with a reason unless Ready.
    ``in_the_way`` are the holders that the change waits for. ``provisional`` is one of an agent
    that has just started and may not decide yet. ``ownership`` is whose the GPU is from now on.
    ``move`` is the move of its node to claims, which has ``excluded_from_move`` this GPU.
    """

    advertise: AdvertisedGpu
    apply: MigPlan | None = None
    evict: tuple[tuple[str, str], ...] = ()
    transition: Transition | None = None
    state: State = State.READY
    reason: str = ""
    in_the_way: tuple[Holder, ...] = ()
    provisional: bool = False
    ownership: Ownership = Ownership()
    move: MoveToClaims | None = None
    excluded_from_move: bool = False


def decide(facts: Facts, previous: Decision | None, policy: Policy, now: float) -> Decision:
    """Decide about one GPU; ``previous`` is the decision before."""
    if isinstance(facts.plan, CannotPartition):
        known = _certain(facts, previous)
        decision = Decision(_as_before(facts)) if known else _on_hold(facts, previous)
        return replace(decision, state=State.FAILED, reason=str(facts.plan))
    target = AdvertisedGpu(facts.target, facts.plan.remaining_uuids)
    misheld = _held_under_another_offer(facts, target)
    right = facts.plan.nothing and facts.applied == facts.target and not misheld
    if right and _certain(facts, previous):
        return _without_daemon(facts, Decision(target))
    if facts.hold:
        return _on_hold(facts, previous)
    idle = facts.plan.idle | misheld.keys() | _renamed(facts, target)
    if moves_to_claims(facts):
        # Once it counts as moved it cannot be advertised again: a pod that the kubelet admits just
        # now, here or to another GPU of the node, would keep it from everybody.
        idle |= {facts.gpu.uuid}
    in_the_way = {**facts.elsewhere, **_in_the_way(facts, facts.plan, misheld)}
    listed = previous is not None and _lists(previous.advertise, facts.gpu, idle)
    fenced = facts.fence and not listed and not _allocatable(facts, idle)
    if facts.plan.nothing and not in_the_way and (fenced or not idle):
        return _without_daemon(facts, Decision(target))
    transition = None if previous is None else previous.transition
    if transition is None or (transition.target, transition.policy) != (facts.target, policy):
        start = now if facts.move is None else facts.move.since
        transition = Transition(facts.target, policy, start)
    holders = tuple(sorted({holder for group in in_the_way.values() for holder in group}))
    reason = f"held by {_names(in_the_way)}"
    if in_the_way and not facts.committed and _blocked(transition, now):
        return Decision(
            _as_before(facts, idle),
            transition=replace(transition, blocked=True),
            state=State.BLOCKED,
            reason=reason,
            in_the_way=holders,
        )
    if transition.blocked:
        transition = Transition(facts.target, policy, now)
    changing = Decision(
        replace(target, withheld=idle),
        transition=transition,
        state=State.CHANGING,
        in_the_way=holders,
    )
    if in_the_way:
        evict = _evictable(holders) if fenced and policy.kind == "evict" else ()
        return replace(changing, state=State.WAITING, reason=reason, evict=evict)
    if not fenced:
        return replace(changing, reason=WITHDRAWING)
    failure = facts.failure
    if failure and failure.plan == facts.plan and now - failure.when < _RETRY_SECONDS:
        return replace(changing, state=State.FAILED, reason=failure.reason)
    return _without_daemon(facts, replace(changing, apply=facts.plan, reason="being repartitioned"))


def _without_daemon(facts: Facts, decision: Decision) -> Decision:
    """Put off what an MPS daemon, or its compute mode, would be in the way of until it is gone."""
    if not _has_daemon_to_end(facts):
        return decision
    return replace(
        decision,
        advertise=replace(
            decision.advertise, withheld=decision.advertise.withheld | {facts.gpu.uuid}
        ),
        apply=None,
        state=State.CHANGING,
        reason=ENDING_MPS,
    )


def _has_daemon_to_end(facts: Facts) -> bool:
    return facts.has_daemon and not any(offer.sharing.by_mps for offer in facts.target.offers)


def moves_to_claims(facts: Facts) -> bool:
    """Return whether claims should have a GPU that the device plugin advertised last."""
    applied = facts.applied
    return facts.target.claims is not None and applied is not None and applied.claims is None


def cannot_change(facts: Facts) -> bool:
    """Return whether an idle GPU does not get to its layout: the driver refuses."""
    if isinstance(facts.plan, CannotPartition):
        return True
    refused = facts.failure is not None and facts.failure.plan == facts.plan
    return refused or (_has_daemon_to_end(facts) and not holders_in_the_way(facts))


def holders_in_the_way(facts: Facts) -> Held:
    """Return the holders of a GPU, by UUID, that its change waits for."""
    if isinstance(facts.plan, CannotPartition):
        return {}
    return _in_the_way(
        facts,
        facts.plan,
        _held_under_another_offer(facts, AdvertisedGpu(facts.target, facts.plan.remaining_uuids)),
    )


def _certain(facts: Facts, previous: Decision | None) -> bool:
    """Return whether ``held`` is known to show every holder of the GPU."""
    if facts.holders_known:
        return True
    if previous is None or previous.provisional:
        return not facts.changing
    return previous.state is State.READY


def _as_before(facts: Facts, idle: frozenset[str] = frozenset()) -> AdvertisedGpu:
    """Return what was advertised; of a GPU seen for the first time, what is not in the way."""
    if facts.applied is None:
        instances = remaining_uuids_of(facts.gpu, facts.target.mig, facts.held)
        before = AdvertisedGpu(facts.target, instances, idle)
    else:
        instances = remaining_uuids_of(facts.gpu, facts.applied.mig, facts.held)
        before = AdvertisedGpu(facts.applied, instances)
    return _less_misheld(facts, before)


def _on_hold(facts: Facts, previous: Decision | None) -> Decision:
    """Change nothing, neither the hardware nor what is advertised."""
    if previous is not None and not previous.provisional:
        advertise = _less_misheld(facts, previous.advertise)
        decision = replace(previous, advertise=advertise, apply=None, evict=())
        if decision.state is State.BLOCKED:
            return decision
        return replace(decision, state=State.WAITING, reason=facts.hold)
    advertise = _as_before(facts)
    if facts.applied is None or not facts.holders_known:
        # The agent before us may have died before it could save what it advertised last.
        advertise = replace(advertise, withheld=frozenset({facts.gpu.uuid}))
    return Decision(advertise, state=State.WAITING, reason=facts.hold, provisional=True)


def _blocked(transition: Transition, now: float) -> bool:
    policy = transition.policy
    expired = transition.blocked or now - transition.since >= policy.deadline
    return policy.kind == "never" or expired


def _held_under_another_offer(
    facts: Facts, advertised: AdvertisedGpu
) -> dict[str, tuple[Holder, ...]]:
    """Return holders whose device would now be advertised under another resource or sharing."""
    offers = offers_by_uuid(advertised, facts.gpu)
    misheld = {
        uuid: tuple(holder for holder in holders if not _as_offered(holder, offers.get(uuid)))
        for uuid, holders in facts.held.items()
    }
    return {uuid: holders for uuid, holders in misheld.items() if holders}


def _less_misheld(facts: Facts, advertised: AdvertisedGpu) -> AdvertisedGpu:
    """Withhold what is held otherwise: it would be allocated a second time."""
    misheld = frozenset(_held_under_another_offer(facts, advertised))
    return replace(advertised, withheld=advertised.withheld | misheld)


def _as_offered(holder: Holder, offer: Offer | None) -> bool:
    held = holder.resource, is_share(holder.device_id), is_client(holder.device_id)
    return offer is not None and held == offer.held_as


def _renamed(facts: Facts, target: AdvertisedGpu) -> frozenset[str]:
    """Return devices that would be advertised otherwise than they were."""
    if facts.applied is None:
        return frozenset()
    instances = frozenset(i.uuid for i in facts.gpu.instances if i.uuid)
    before = offers_by_uuid(AdvertisedGpu(facts.applied, instances), facts.gpu)
    after = offers_by_uuid(target, facts.gpu)
    return frozenset(
        uuid
        for uuid, offer in after.items()
        if uuid in before and before[uuid].held_as != offer.held_as
    )


def _allocatable(facts: Facts, idle: frozenset[str]) -> bool:
    """Return whether the kubelet would still allocate what must be idle."""
    return any(_concerns(physical(known), idle, facts.gpu) for known in facts.allocatable)


def _lists(advertised: AdvertisedGpu, gpu: Gpu, idle: frozenset[str]) -> bool:
    """Return whether a device that must be idle is listed, be it as unhealthy.

    It may become healthy, and be allocated, while the kubelet is asked what it would allocate.
    """
    withheld = advertised.withheld
    return gpu.uuid not in withheld and any(
        uuid not in withheld and _concerns(uuid, idle, gpu)
        for uuid in offers_by_uuid(advertised, gpu)
    )


def _in_the_way(
    facts: Facts, plan: MigPlan, misheld: Mapping[str, tuple[Holder, ...]]
) -> dict[str, tuple[Holder, ...]]:
    """Return the holders, by UUID, that forbid the change now."""
    in_the_way = dict(misheld)
    for uuid, holders in facts.held.items():
        if _concerns(uuid, plan.idle, facts.gpu):
            in_the_way[uuid] = holders
    for uuid in facts.busy:
        if _concerns(uuid, plan.idle, facts.gpu):
            in_the_way.setdefault(uuid, ())
    return in_the_way


def _concerns(uuid: str, idle: Collection[str], gpu: Gpu) -> bool:
    """Return whether a device is one of those in ``idle``, or on a GPU that is."""
    if uuid in idle:
        return True
    on_gpu = uuid == gpu.uuid or any(uuid in instance.uuids for instance in gpu.instances)
    return on_gpu and gpu.uuid in idle


def _evictable(holders: tuple[Holder, ...]) -> tuple[tuple[str, str], ...]:
    pods = {(holder.pod, holder.pod_uid) for holder in holders}
    return tuple(sorted((pod, uid) for pod, uid in pods if pod and uid))


def _names(in_the_way: Mapping[str, tuple[Holder, ...]]) -> str:
    names: set[str] = set()
    for uuid, holders in in_the_way.items():
        names.update(holder.text for holder in holders)
        if not holders:
            names.add(f"processes outside pods on {uuid}")
    return bounded_names(names)
