"""One look at a node and what follows from it, for every GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.decide.checkpoint import Checkpoint
from divvy.agent.decide.coexistence import mig_manager_at_work
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.hardware import Gpu, Snapshot
from divvy.agent.decide.holders import Held, on_gpu
from divvy.agent.decide.inventory import AdvertisedGpu
from divvy.agent.decide.mig_plan import CannotPartition, MigPlan, try_plan_mig
from divvy.agent.decide.transition import Decision, Facts, Failure, Transition, decide
from divvy.model import DesiredGpu
from divvy.model.contract import State


@dataclass(frozen=True)
class KubeletView:
    """What the kubelet says of devices at one instant.

    ``fence`` tells whether it has taken every list of ours; ``allocatable`` are the device IDs it
    would allocate, ``held`` the holders by UUID.
    """

    held: Held
    allocatable: frozenset[str]
    fence: bool


@dataclass(frozen=True)
class Observation:
    """What a reconciliation rests on.

    ``kubelet`` is why its view is unknown where it is: no answer is never an empty answer.
    ``busy`` maps GPUs to the UUIDs on them that have processes but no holder; ``applying`` are
    GPUs whose plan is being executed; ``failures`` the last refusals of the driver, by GPU;
    ``unrecorded`` GPUs whose change the agent's own checkpoint could not be told of; ``claimed``
    the GPUs that claims are offered or hold, with who does.
    """

    snapshot: Snapshot
    kubelet: KubeletView | str
    api_in_touch: bool
    labels: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, frozenset[str]] = field(default_factory=dict)
    applying: frozenset[str] = frozenset()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    unrecorded: frozenset[str] = frozenset()
    claimed: Held = field(default_factory=dict)


def plans(
    desired: DesiredState, snapshot: Snapshot, held: Held
) -> dict[str, MigPlan | CannotPartition]:
    """Plan every GPU that the driver describes now, by UUID."""
    made = {}
    for layout in desired.node.gpus:
        gpu = snapshot.gpu(layout.uuid)
        if gpu is not None and gpu.present:
            made[gpu.uuid] = try_plan_mig(gpu, layout.mig, held)
    return made


def decisions(
    desired: DesiredState,
    observed: Observation,
    checkpoint: Checkpoint,
    previous: Mapping[str, Decision],
    now: float,
) -> dict[str, Decision]:
    """Decide about every GPU of the node; ``checkpoint`` tells what was advertised of each last."""
    applied = checkpoint.applied
    kubelet: Held = {} if isinstance(observed.kubelet, str) else observed.kubelet.held
    held = {**kubelet}
    for uuid, holders in observed.claimed.items():
        held[uuid] = (*holders, *held.get(uuid, ()))
    decided = {}
    for layout in desired.node.gpus:
        gpu = observed.snapshot.gpu(layout.uuid)
        before = previous.get(layout.uuid)
        if gpu is None:
            continue
        if gpu.uuid in observed.applying:
            decided[gpu.uuid] = _in_work(layout, before)
            continue
        if layout.claims is not None and (
            gpu.uuid in observed.claimed or _is_claimed(applied, gpu)
        ):
            decided[gpu.uuid] = Decision(AdvertisedGpu(layout))
            continue
        if not gpu.present:
            decided[gpu.uuid] = _as_it_was(gpu, applied.get(gpu.uuid, layout), before)
            continue
        busy = observed.busy.get(gpu.uuid, frozenset())
        facts = Facts(
            target=layout,
            applied=applied.get(gpu.uuid),
            gpu=gpu,
            # A device that processes use is as good as held when it comes to which stays.
            plan=try_plan_mig(gpu, layout.mig, frozenset(held) | busy),
            held=on_gpu(gpu, held),
            busy=busy,
            allocatable=_allocatable(observed.kubelet),
            fence=not isinstance(observed.kubelet, str) and observed.kubelet.fence,
            hold=_hold(observed, gpu.uuid),
            holders_known=not isinstance(observed.kubelet, str),
            changing=gpu.uuid in checkpoint.changing,
            failure=observed.failures.get(gpu.uuid),
        )
        decided[gpu.uuid] = decide(facts, before, desired.policy, now)
    return decided


def _is_claimed(applied: Mapping[str, DesiredGpu], gpu: Gpu) -> bool:
    """Return whether a GPU is not the device plugin's: its instances come and go with claims.

    Of one that was never seen nothing is removed: the claims of an agent that lost its state may
    have it.
    """
    before = applied.get(gpu.uuid)
    return before is None or before.claims is not None


def _in_work(layout: DesiredGpu, before: Decision | None) -> Decision:
    """Leave a GPU whose plan is being executed to it; None of it where what was is not known."""
    if before is not None:
        return replace(before, apply=None, evict=())
    advertise = AdvertisedGpu(layout, withheld=frozenset({layout.uuid}))
    return Decision(advertise, state=State.CHANGING, reason="being repartitioned")


def _as_it_was(gpu: Gpu, layout: DesiredGpu, before: Decision | None) -> Decision:
    """Leave a GPU that is lost or does not answer as it was: nothing is known of it now."""
    if before is not None:
        return replace(before, apply=None, evict=())
    instances = frozenset(instance.uuid for instance in gpu.instances if instance.uuid)
    return Decision(AdvertisedGpu(layout, instances), provisional=True)


def _allocatable(kubelet: KubeletView | str) -> frozenset[str]:
    return frozenset() if isinstance(kubelet, str) else kubelet.allocatable


def _hold(observed: Observation, uuid: str) -> str:
    """Say why a GPU may not change now, "" where it may."""
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
