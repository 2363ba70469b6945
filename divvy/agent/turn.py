"""How one GPU gets from the layout it has to the layout it should have: one decision a time.

The fence: devices that are re-cut are withdrawn first; only when the kubelet no
longer lists them as allocatable, and nobody holds them, are they touched. What
pods hold stays theirs; until a deadline the agent waits (or evicts), then the
old layout is offered again and the node says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from divvy.agent.hardware import Gpu
from divvy.agent.holders import Holder
from divvy.agent.inventory import offered_resource, physical
from divvy.agent.partition import CannotPartition, Recut
from divvy.model import DesiredGpu


@dataclass(frozen=True)
class Turn:
    """A change under way: when it began, and whether its deadline has passed."""

    since: float
    blocked: bool = False


@dataclass(frozen=True)
class Policy:
    """What happens to pods that are in the way: "wait", "evict" or "never", and how long."""

    kind: str
    deadline: float


@dataclass(frozen=True)
class Facts:
    """What the decision about one GPU rests on.

    ``target`` is the wish, ``applied`` what is offered now (None on first sight);
    ``plan`` the re-cut to the target or why there is none; ``held`` maps UUIDs of
    this GPU and its MIG devices to their holders; ``busy`` are UUIDs with
    processes on them that no pod accounts for; ``allocatable`` are the IDs the
    kubelet would hand out now.
    """

    target: DesiredGpu
    applied: DesiredGpu | None
    gpu: Gpu
    plan: Recut | CannotPartition
    held: Mapping[str, tuple[Holder, ...]]
    busy: Collection[str]
    allocatable: Collection[str]


@dataclass(frozen=True)
class Decision:
    """What to do now.

    ``offer`` is the layout to offer, less the UUIDs in ``withheld``; ``recut``
    says that the plan may be executed; ``evict`` names pods to evict; ``state``
    is Ready, Changing, Waiting, Blocked or Failed, with a reason unless Ready.
    """

    offer: DesiredGpu
    withheld: frozenset[str] = frozenset()
    recut: bool = False
    evict: tuple[str, ...] = ()
    turn: Turn | None = None
    state: str = "Ready"
    reason: str = ""


def decide(facts: Facts, turn: Turn | None, policy: Policy, now: float) -> Decision:
    """Decide about one GPU."""
    old = facts.applied or facts.target
    if isinstance(facts.plan, CannotPartition):
        return Decision(old, state="Failed", reason=str(facts.plan))
    idle = _must_be_idle(facts, facts.plan)
    in_the_way = _in_the_way(facts, facts.plan, idle)
    if facts.plan.nothing and not in_the_way:
        return Decision(facts.target)
    who = _names(in_the_way)
    blocked = policy.kind == "never" or (turn is not None and turn.blocked)
    if in_the_way and blocked:
        since = now if turn is None else turn.since
        kept = Decision(
            old, turn=Turn(since, blocked=True), state="Blocked", reason=f"held by {who}"
        )
        return kept if facts.applied is not None else replace(kept, withheld=idle)
    turn = Turn(now) if turn is None or turn.blocked else turn
    if in_the_way and now - turn.since >= policy.deadline:
        return decide(facts, replace(turn, blocked=True), policy, now)
    changing = Decision(facts.target, withheld=idle, turn=turn, state="Changing")
    if any(_is_or_is_on(physical(known), idle, facts.gpu) for known in facts.allocatable):
        return replace(changing, reason="the kubelet still offers the old devices")
    if in_the_way:
        pods = tuple(sorted({h.pod for holders in in_the_way.values() for h in holders if h.pod}))
        evict = pods if policy.kind == "evict" else ()
        return replace(changing, state="Waiting", reason=f"held by {who}", evict=evict)
    return replace(changing, recut=not facts.plan.nothing, reason="re-cutting")


def _must_be_idle(facts: Facts, plan: Recut) -> frozenset[str]:
    """Return UUIDs to withdraw: what is destroyed, and what is held under another resource."""
    moved = {
        uuid
        for uuid, holders in facts.held.items()
        for holder in holders
        if holder.resource != offered_resource(facts.target, facts.gpu, uuid)
    }
    return plan.idle | frozenset(moved)


def _in_the_way(facts: Facts, plan: Recut, idle: frozenset[str]) -> dict[str, tuple[Holder, ...]]:
    """Return the holders, by UUID, that forbid the change now."""
    found = {
        uuid: holders for uuid, holders in facts.held.items() if _is_or_is_on(uuid, idle, facts.gpu)
    }
    if not plan.nothing:
        for uuid in facts.busy:
            if _is_or_is_on(uuid, plan.idle, facts.gpu):
                found.setdefault(uuid, ())
    return found


def _is_or_is_on(uuid: str, idle: Collection[str], gpu: Gpu) -> bool:
    if uuid in idle:
        return True
    on_gpu = uuid == gpu.uuid or any(instance.uuid == uuid for instance in gpu.instances)
    return on_gpu and gpu.uuid in idle


def _names(in_the_way: Mapping[str, tuple[Holder, ...]]) -> str:
    names: set[str] = set()
    for uuid, holders in in_the_way.items():
        names.update(
            holder.pod or f"a pod being admitted ({holder.device_id})" for holder in holders
        )
        if not holders:
            names.add(f"processes outside pods on {uuid}")
    return ", ".join(sorted(names))
