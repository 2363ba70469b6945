"""The smallest change that brings one GPU's MIG instances to a layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import combinations

from divvy.agent.hardware import Gpu, MigInstance
from divvy.agent.inventory import profile_name
from divvy.model import MigGeometry, NoPlacement, Placement, model_of_product, place


class CannotPartition(Exception):
    """A layout this GPU cannot take; the text says why."""


@dataclass(frozen=True)
class Recut:
    """What has to be done to one GPU, in this order.

    ``destroy`` first, then ``mode`` (None: leave MIG mode alone), then
    ``complete`` (GPU instances that lack their compute instance) and ``create``.
    ``idle`` are the UUIDs nobody may hold meanwhile: the destroyed MIG devices,
    or the GPU itself for a change of mode.
    """

    gpu: str
    destroy: tuple[MigInstance, ...] = ()
    mode: bool | None = None
    complete: tuple[MigInstance, ...] = ()
    create: tuple[Placement, ...] = ()

    @property
    def nothing(self) -> bool:
        """Tell whether the GPU is right already."""
        return not (self.destroy or self.complete or self.create) and self.mode is None

    @property
    def idle(self) -> frozenset[str]:
        """Return the UUIDs that must be free before the change."""
        if self.mode is not None:
            return frozenset({self.gpu})
        return frozenset(instance.uuid for instance in self.destroy if instance.uuid)


def recut(gpu: Gpu, layout: Mapping[str, int] | None, held: Collection[str] = ()) -> Recut:
    """Plan the change of one GPU to ``layout`` (None: MIG off).

    Instances that fit the layout stay; among equals those in ``held`` (MIG UUIDs)
    stay first. Raises CannotPartition.
    """
    if layout is None:
        if not gpu.mig_mode and not gpu.mig_pending:
            return Recut(gpu.uuid)
        return Recut(gpu.uuid, destroy=gpu.instances, mode=False)
    model = model_of_product(gpu.product, gpu.memory_mib)
    if model is None or model.mig is None or gpu.mig_mode is None:
        raise CannotPartition(f"{gpu.product} has no MIG: give it a profile without `mig`")
    geometry = model.mig
    if not gpu.mig_mode:
        return Recut(gpu.uuid, mode=True, create=_placed(geometry, layout, ()))
    kept = _keep(geometry, gpu, layout, held)
    fixed = tuple(_placement(gpu, instance) for instance in kept)
    create = Counter(_placed(geometry, layout, fixed)) - Counter(fixed)
    return Recut(
        gpu.uuid,
        destroy=tuple(instance for instance in gpu.instances if instance not in kept),
        complete=tuple(instance for instance in kept if instance.uuid is None),
        create=tuple(sorted(create)),
    )


def try_recut(
    gpu: Gpu, layout: Mapping[str, int] | None, held: Collection[str] = ()
) -> Recut | CannotPartition:
    """Plan as ``recut`` does, and return the refusal instead of raising it."""
    try:
        return recut(gpu, layout, held)
    except CannotPartition as refusal:
        return refusal


def _keep(
    geometry: MigGeometry, gpu: Gpu, layout: Mapping[str, int], held: Collection[str]
) -> tuple[MigInstance, ...]:
    """Return the most instances that can stay so that the layout still has a placement."""
    names = {instance.gi: profile_name(gpu, instance) for instance in gpu.instances}
    useful = [instance for instance in gpu.instances if layout.get(names[instance.gi] or "", 0)]
    # Held instances lead, so that of equally many the first combination keeps them.
    useful.sort(key=lambda instance: (instance.uuid not in held, instance.start))
    for count in range(len(useful), 0, -1):
        for group in combinations(useful, count):
            used = Counter(names[instance.gi] for instance in group)
            if any(number > layout[name or ""] for name, number in used.items()):
                continue
            fixed = tuple(_placement(gpu, instance) for instance in group)
            try:
                place(geometry, layout, fixed)
            except NoPlacement:
                continue
            return tuple(sorted(group, key=lambda instance: instance.start))
    return ()


def _placement(gpu: Gpu, instance: MigInstance) -> Placement:
    return Placement(instance.start, instance.size, profile_name(gpu, instance) or "")


def _placed(
    geometry: MigGeometry, layout: Mapping[str, int], fixed: tuple[Placement, ...]
) -> tuple[Placement, ...]:
    try:
        return place(geometry, layout, fixed)
    except NoPlacement as problem:
        raise CannotPartition(str(problem)) from None


def nvml_profile(gpu: Gpu, profile: str) -> int:
    """Return the NVML number of a profile name on this GPU's model."""
    model = model_of_product(gpu.product, gpu.memory_mib)
    assert model is not None
    assert model.mig is not None
    return next(known.nvml_profile for known in model.mig.profiles if known.name == profile)
