"""``decisions``: what one observation of a node means for each of its GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.claims.offers import claim_holders, wanted_offers
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.coexistence import mig_manager_at_work
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Held, bounded_names, on_gpu
from divvy.agent.gpu.mig_plan import mig_layout, try_plan_mig
from divvy.agent.gpu.moving_node import move_of, moving_node, moving_together
from divvy.agent.gpu.owner import (
    ClaimsView,
    KubeletView,
    Owner,
    Ownership,
    hand_over,
    is_left_to_claims,
    kubelet_fence,
)
from divvy.agent.gpu.transition import (
    Decision,
    Facts,
    Failure,
    Transition,
    decide,
)
from divvy.agent.plugin.inventory import AdvertisedGpu
from divvy.model import DesiredGpu
from divvy.model.api_names import State


@dataclass(frozen=True)
class Observation:
    """What a reconciliation rests on.

    ``kubelet`` says why its view is unknown, if it is: no answer is never an empty answer.
    ``busy`` maps GPUs to the UUIDs on them that have processes but no holder; ``applying`` are
    GPUs whose plan is being executed; ``failures`` the last refusals of the driver, by GPU;
    ``unrecorded`` GPUs whose change the agent's own checkpoint could not be told of; ``daemons``
    GPUs that have an MPS daemon, or its compute mode.
    """

    snapshot: Snapshot
    kubelet: KubeletView | str
    api_in_touch: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, frozenset[str]] = field(default_factory=dict)
    applying: frozenset[str] = frozenset()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    unrecorded: frozenset[str] = frozenset()
    claims: ClaimsView = ClaimsView()
    daemons: frozenset[str] = frozenset()


def differing(desired: DesiredState, snapshot: Snapshot, claims: ClaimsView) -> tuple[Gpu, ...]:
    """Return the GPUs that have another MIG layout than they should: a plan may touch devices."""
    gpus = []
    for layout in desired.node.gpus:
        gpu = snapshot.gpu(layout.uuid)
        if gpu is None or not gpu.present or claims.has(gpu.uuid):
            continue
        if mig_layout(gpu) != layout.mig or (layout.mig is None and gpu.mig_pending):
            gpus.append(gpu)
    return tuple(gpus)


def decisions(
    desired: DesiredState,
    observed: Observation,
    checkpoint: Checkpoint,
    previous: Mapping[str, Decision],
    now: float,
) -> dict[str, Decision]:
    """Decide about every GPU of the node; ``checkpoint`` tells what was advertised of each last."""
    decided = _transitions(desired, observed, checkpoint, previous, now)
    owners = ownerships(desired, observed, decided)
    to_claims = {layout.uuid for layout in desired.node.gpus if layout.claims is not None}
    by_claims = {uuid for uuid in to_claims & owners.keys() if owners[uuid].owner is Owner.CLAIMS}
    # The scheduler takes a resource that a node advertises for the device plugin's alone.
    withheld = to_claims - by_claims if by_claims else frozenset()
    return {
        uuid: replace(_withheld(decision) if uuid in withheld else decision, ownership=owners[uuid])
        for uuid, decision in decided.items()
    }


def ownerships(
    desired: DesiredState, observed: Observation, decided: Mapping[str, Decision]
) -> dict[str, Ownership]:
    """Return whose each GPU is: of those decided about, and of all that claims have."""
    snapshot, claims = observed.snapshot, observed.claims
    wanted = wanted_offers(desired, snapshot, claims.record.offered)
    gpus = filter(None, (snapshot.gpu(layout.uuid) for layout in desired.node.gpus))
    excluded_from_move = frozenset(
        uuid for uuid, decision in decided.items() if decision.excluded_from_move
    )
    fence = kubelet_fence(gpus, observed.kubelet, _unready(observed, decided), excluded_from_move)
    owners = {
        uuid: hand_over(uuid, wanted.get(uuid), fence, claims, listed=_is_listed(decided.get(uuid)))
        for uuid in (*decided, *(claims.record.offered.keys() - decided.keys()))
    }
    return {
        uuid: replace(owner, waits_for="it does not answer")
        if owner.owner is Owner.NOBODY and not (owner.waits_for or _is_present(snapshot, uuid))
        else owner
        for uuid, owner in owners.items()
    }


def _unready(observed: Observation, decided: Mapping[str, Decision]) -> dict[str, str]:
    """Return what the layout of each GPU that is not ready waits for.

    A GPU that does not answer is not offered, whatever its layout.
    """
    return {
        uuid: decision.reason or "nothing is known of it yet"
        for uuid, decision in decided.items()
        if (decision.provisional or decision.state is not State.READY)
        and (uuid in observed.applying or _is_present(observed.snapshot, uuid))
    }


def _is_present(snapshot: Snapshot, uuid: str) -> bool:
    gpu = snapshot.gpu(uuid)
    return gpu is not None and gpu.present


def _withheld(decision: Decision) -> Decision:
    """Return a decision by which nothing of its GPU is advertised."""
    advertise = decision.advertise
    withheld = advertise.withheld | {advertise.layout.uuid}
    return replace(decision, advertise=replace(advertise, withheld=withheld))


def _is_listed(decision: Decision | None) -> bool:
    """Return whether the device plugin lists a device of a GPU."""
    if decision is None:
        return False
    advertised = decision.advertise
    return bool(advertised.layout.offers) and advertised.layout.uuid not in advertised.withheld


def _transitions(
    desired: DesiredState,
    observed: Observation,
    checkpoint: Checkpoint,
    previous: Mapping[str, Decision],
    now: float,
) -> dict[str, Decision]:
    """Decide about the layout of every GPU, whoever owns it.

    Each is planned once. A device that processes use is as good as held when it comes to which of
    them stay.
    """
    applied = checkpoint.applied
    kubelet: Held = {} if isinstance(observed.kubelet, str) else observed.kubelet.held
    held = {**kubelet}
    claims = observed.claims
    for uuid, holders in claim_holders(claims.record, claims.unknown).items():
        held[uuid] = (*holders, *held.get(uuid, ()))
    decided: dict[str, Decision] = {}
    open_facts: dict[str, Facts] = {}
    for layout in desired.node.gpus:
        gpu = observed.snapshot.gpu(layout.uuid)
        before = previous.get(layout.uuid)
        if gpu is None:
            continue
        if gpu.uuid in observed.applying:
            decided[gpu.uuid] = _in_work(layout, before)
            continue
        changing = gpu.uuid in checkpoint.changing
        if is_left_to_claims(layout, applied.get(gpu.uuid), observed.claims, changing=changing):
            decided[gpu.uuid] = Decision(AdvertisedGpu(layout))
            continue
        if not gpu.present:
            decision = _as_it_was(gpu, applied.get(gpu.uuid, layout), before)
            # An agent that lost its state would list what claims have, to be allocated once well.
            decided[gpu.uuid] = _withheld(decision) if observed.claims.has(gpu.uuid) else decision
            continue
        busy = observed.busy.get(gpu.uuid, frozenset())
        open_facts[gpu.uuid] = Facts(
            target=layout,
            applied=applied.get(gpu.uuid),
            gpu=gpu,
            plan=try_plan_mig(gpu, layout.mig, frozenset(held) | busy),
            held=on_gpu(gpu, held),
            busy=busy,
            allocatable=_allocatable(observed.kubelet),
            fence=not isinstance(observed.kubelet, str) and observed.kubelet.fence,
            hold=_hold(observed, gpu.uuid),
            holders_known=not isinstance(observed.kubelet, str),
            changing=changing,
            failure=observed.failures.get(gpu.uuid),
            has_daemon=gpu.uuid in observed.daemons,
        )
    node = moving_node(
        desired.node.gpus,
        observed.snapshot,
        observed.claims,
        observed.applying,
        checkpoint,
        open_facts,
        kubelet,
    )
    moves = (decision.move for decision in previous.values() if decision.move is not None)
    holders_known = not isinstance(observed.kubelet, str)
    move = move_of(node, next(moves, None), desired.policy, now, holders_known=holders_known)
    excluded_from_move = frozenset() if move is None else move.excluded_from_move(now)
    for uuid, facts in moving_together(open_facts, node, move, excluded_from_move).items():
        decided[uuid] = decide(facts, previous.get(uuid), desired.policy, now)
    return {
        uuid: replace(
            _waiting(decision, node.gone[uuid]) if uuid in node.gone else decision,
            move=move,
            excluded_from_move=uuid in excluded_from_move,
        )
        for uuid, decision in decided.items()
    }


def _waiting(decision: Decision, held: Held) -> Decision:
    """Return what a GPU that does not answer waits for on its way to claims."""
    names = {holder.text for holders in held.values() for holder in holders}
    if names and decision.state is not State.BLOCKED:
        reason = f"held by {bounded_names(names)}"
        return replace(_withheld(decision), state=State.WAITING, reason=reason)
    return decision


def _in_work(layout: DesiredGpu, before: Decision | None) -> Decision:
    """Keep a GPU that is being repartitioned as it is; withhold it if what it was is not known."""
    if before is not None:
        return replace(before, apply=None, evict=())
    advertise = AdvertisedGpu(layout, withheld=frozenset({layout.uuid}))
    return Decision(advertise, state=State.CHANGING, reason="being repartitioned")


def _as_it_was(gpu: Gpu, layout: DesiredGpu, before: Decision | None) -> Decision:
    """Leave a GPU that is lost or does not answer as it was: nothing is known of it now."""
    if before is not None:
        decision = replace(before, apply=None, evict=())
        if before.state is not State.CHANGING:
            return decision
        return replace(decision, state=State.WAITING, reason="its change goes on once it answers")
    instances = frozenset(instance.uuid for instance in gpu.instances if instance.uuid)
    return Decision(AdvertisedGpu(layout, instances), provisional=True)


def _allocatable(kubelet: KubeletView | str) -> frozenset[str]:
    return frozenset() if isinstance(kubelet, str) else kubelet.allocatable


def _hold(observed: Observation, uuid: str) -> str:
    """Return why a GPU may not change now, "" if it may."""
    if isinstance(observed.kubelet, str):
        return observed.kubelet
    if not observed.api_in_touch:
        return "the API server does not answer: no repartitioning until it does"
    if uuid in observed.unrecorded:
        return "the agent's state cannot be saved: no repartitioning until it can be saved"
    return mig_manager_at_work(observed.labels)


def under_way(decided: Iterable[Decision]) -> tuple[Transition, ...]:
    """Return the transitions that go on without a person's doing."""
    return tuple(
        decision.transition
        for decision in decided
        if decision.transition is not None and not decision.transition.blocked
    )
