"""``Disruption``: the effect of a change of a node's plan on the pods that run there."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from divvy.model import MigGeometry, NoPlacement, Placement, place
from divvy.plan.predict.prediction import GpuPlan, NodePlan
from divvy.plan.review.level import LEVELS, Level


@dataclass(frozen=True)
class Disruption:
    """How much a change disturbs: its level, the GPUs of a node that cause it, and why."""

    level: Level
    gpus: tuple[int, ...] = ()
    reason: str = ""


NONE = Disruption("none")


def worst(disruptions: tuple[Disruption, ...]) -> Disruption:
    """Return the worst of several disruptions, the first of equals."""
    return max(disruptions, key=lambda disruption: LEVELS.index(disruption.level), default=NONE)


def disruption(before: NodePlan | None, after: NodePlan | None) -> Disruption:
    """Return what turning a node from one plan into another demands."""
    if before is None and after is None:
        return NONE
    if after is None:
        return Disruption(
            "new pods only", (), "the pool goes: what no other selects is no longer advertised"
        )
    if before is None:
        cut = tuple(gpu.index for gpu in after.gpus if gpu.placements is not None)
        if cut:
            return Disruption("GPUs must be idle", cut, "MIG mode is switched on")
        return NONE
    if _hardware(before) != _hardware(after):
        every = tuple(gpu.index for gpu in after.gpus)
        return Disruption("GPUs must be idle", every, "other hardware takes the place of this one")
    steps = {
        gpu.index: _step(gpu, later) for gpu, later in zip(before.gpus, after.gpus, strict=True)
    }
    others = before.other_devices != after.other_devices
    level = worst(tuple(steps.values())).level
    if level == "none":
        return (
            Disruption("new pods only", (), "running pods keep what they have") if others else NONE
        )
    touched = {index: step for index, step in steps.items() if step.level == level}
    reasons = dict.fromkeys(step.reason for step in touched.values())
    return Disruption(level, tuple(touched), "; ".join(reasons))


def _hardware(node: NodePlan) -> tuple[str, ...]:
    return tuple(gpu.model.name for gpu in node.gpus)


def _step(before: GpuPlan, after: GpuPlan) -> Disruption:
    if before.claims is not None or after.claims is not None:
        return _claims_step(before, after)
    if before.placements is None or after.placements is None:
        if (before.placements is None) == (after.placements is None):
            return _sharing(before, after)
        way = "on" if after.placements is not None else "off"
        mig = after.model.mig
        reset = " and the GPU is reset" if mig is not None and mig.mode_needs_reset else ""
        return Disruption("GPUs must be idle", (), f"MIG mode is switched {way}{reset}")
    removed = _removed(before, after)
    if removed:
        names = Counter(placement.profile for placement in removed)
        listed = ", ".join(f"{number} × {name}" for name, number in names.items())
        return Disruption("GPUs must be idle", (), f"MIG devices that go must be free: {listed}")
    sharing = _sharing(before, after)
    if sharing.level != "GPUs must be idle" and Counter(_names(after)) != Counter(_names(before)):
        return Disruption("new pods only", (), "MIG devices are added, the others stay")
    return sharing


def _claims_step(before: GpuPlan, after: GpuPlan) -> Disruption:
    if before.claims == after.claims:
        return NONE
    if before.claims is None:
        reason = "claims get a GPU when no pod of the device plugin holds it"
        return Disruption("GPUs must be idle", (), reason)
    if after.claims is None:
        reason = "the device plugin gets a GPU when no claim holds it"
        return Disruption("GPUs must be idle", (), reason)
    return Disruption("new pods only", (), "claims that are held keep what they have")


def _sharing(before: GpuPlan, after: GpuPlan) -> Disruption:
    if before.offers == after.offers:
        return NONE
    later = {offer.mig_profile: offer for offer in after.offers}
    otherwise = [
        (offer.resource, later[offer.mig_profile].resource)
        for offer in before.offers
        if offer.mig_profile in later and later[offer.mig_profile].held_as != offer.held_as
    ]
    if otherwise:
        names = ", ".join(
            f"{old} becomes {new}" if old != new else f"{old} is shared in another way"
            for old, new in otherwise
        )
        return Disruption("GPUs must be idle", (), names)
    return Disruption("new pods only", (), "running pods keep what they have")


def _names(gpu: GpuPlan) -> list[str]:
    return [placement.profile for placement in gpu.placements or ()]


def _removed(before: GpuPlan, after: GpuPlan) -> tuple[Placement, ...]:
    """Return the MIG instances that cannot stay, as few as possible."""
    assert after.model.mig is not None
    layout = tuple(sorted(Counter(_names(after)).items()))
    return _least_removed(after.model.mig, before.placements or (), layout)


@cache
def _least_removed(
    geometry: MigGeometry, placements: tuple[Placement, ...], layout: tuple[tuple[str, int], ...]
) -> tuple[Placement, ...]:
    for number in range(len(placements), 0, -1):
        for stay in combinations(placements, number):
            try:
                place(geometry, dict(layout), stay)
            except NoPlacement:
                continue
            return tuple(placement for placement in placements if placement not in stay)
    return placements
