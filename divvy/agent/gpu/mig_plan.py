"""The smallest change that brings one GPU's MIG instances to a layout.

A plan is made once. What it keeps is what is advertised, what it destroys is what is fenced, and
what is executed is the plan itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from divvy.agent.gpu.hardware import Gpu, MigInstance
from divvy.model import MigGeometry, NoPlacement, Placement, model_of_product, place


class CannotPartition(Exception):
    """A layout this GPU cannot take; the text says why."""


@dataclass(frozen=True)
class MigPlan:
    """What has to be done to one GPU, in this order.

    ``keep`` stays as it is. ``destroy`` first, then ``mode`` (None: leave MIG mode alone), then
    ``complete`` (GPU instances that lack their compute instance) and ``create``. ``idle`` are the
    UUIDs that no pod may hold meanwhile: the destroyed MIG devices, or the GPU itself for a change
    of mode.
    """

    gpu: str
    keep: tuple[MigInstance, ...] = ()
    destroy: tuple[MigInstance, ...] = ()
    mode: bool | None = None
    complete: tuple[MigInstance, ...] = ()
    create: tuple[Placement, ...] = ()

    @property
    def nothing(self) -> bool:
        """Return whether the GPU is right already."""
        return not (self.destroy or self.complete or self.create) and self.mode is None

    @property
    def idle(self) -> frozenset[str]:
        """Return the UUIDs that must be free before the change."""
        if self.mode is not None:
            return frozenset({self.gpu})
        return frozenset(uuid for instance in self.destroy for uuid in instance.uuids)

    @property
    def remaining_uuids(self) -> frozenset[str]:
        """Return the UUIDs of the MIG devices that stay."""
        return frozenset(instance.uuid for instance in self.keep if instance.uuid)


def plan_mig(gpu: Gpu, layout: Mapping[str, int] | None, held: Collection[str] = ()) -> MigPlan:
    """Plan the change of one GPU to ``layout`` (None: MIG off).

    Of the instances that fit the layout, as many of those in ``held`` (MIG UUIDs) stay as can,
    and then as many of the others. Raises CannotPartition.
    """
    if layout is None:
        if not gpu.mig_mode and not gpu.mig_pending:
            return MigPlan(gpu.uuid)
        return MigPlan(gpu.uuid, destroy=gpu.instances, mode=False)
    geometry = _geometry(gpu)
    if geometry is None or gpu.mig_mode is None:
        raise CannotPartition(f"{gpu.product} has no MIG: give it a profile without `mig`")
    if not gpu.mig_mode:
        return MigPlan(gpu.uuid, mode=True, create=_placed(geometry, layout, ()))
    keep = _keep(geometry, gpu, layout, held)
    fixed = tuple(_placement(gpu, instance) for instance in keep)
    create = Counter(_placed(geometry, layout, fixed)) - Counter(fixed)
    return MigPlan(
        gpu.uuid,
        keep=keep,
        destroy=tuple(instance for instance in gpu.instances if instance not in keep),
        complete=tuple(instance for instance in keep if instance.uuid is None),
        create=tuple(sorted(create)),
    )


def try_plan_mig(
    gpu: Gpu, layout: Mapping[str, int] | None, held: Collection[str] = ()
) -> MigPlan | CannotPartition:
    """Plan as ``plan_mig`` does, and return the refusal instead of raising it."""
    try:
        return plan_mig(gpu, layout, held)
    except CannotPartition as refusal:
        return refusal


def remaining_uuids_of(
    gpu: Gpu, layout: Mapping[str, int] | None, held: Collection[str] = ()
) -> frozenset[str]:
    """Return the MIG devices that ``layout`` would keep, none if it cannot be made."""
    plan = try_plan_mig(gpu, layout, held)
    return plan.remaining_uuids if isinstance(plan, MigPlan) else frozenset()


def profile_name(gpu: Gpu, instance: MigInstance) -> str | None:
    """Return the profile of a MIG instance ("1g.5gb").

    None if the model is unknown, or no MIG device has all of the instance.
    """
    geometry = _geometry(gpu)
    if geometry is None or instance.others or instance.partial:
        return None
    return next((p.name for p in geometry.profiles if p.profile_id == instance.profile_id), None)


def mig_layout(gpu: Gpu) -> Mapping[str, int] | None:
    """Count the instances of a GPU by profile, None if MIG is off."""
    if not gpu.mig_mode:
        return None
    layout: dict[str, int] = {}
    for instance in gpu.instances:
        name = profile_name(gpu, instance) or f"profile {instance.profile_id}"
        layout[name] = layout.get(name, 0) + 1
    return layout


def nvml_profile(gpu: Gpu, profile: str) -> int:
    """Return the NVML number of a profile name on this GPU's model."""
    geometry = _geometry(gpu)
    assert geometry is not None
    return next(known.nvml_profile for known in geometry.profiles if known.name == profile)


def _geometry(gpu: Gpu) -> MigGeometry | None:
    model = model_of_product(gpu.product, gpu.memory_mib)
    return None if model is None else model.mig


def _keep(
    geometry: MigGeometry, gpu: Gpu, layout: Mapping[str, int], held: Collection[str]
) -> tuple[MigInstance, ...]:
    """Return the instances that stay: the most of the held ones, then the most of all."""
    names = {instance.gi: profile_name(gpu, instance) for instance in gpu.instances}
    useful = [instance for instance in gpu.instances if layout.get(names[instance.gi] or "", 0)]
    useful.sort(key=lambda instance: instance.start)
    for group in _by_preference(useful, held):
        used = Counter(names[instance.gi] for instance in group)
        if any(number > layout[name or ""] for name, number in used.items()):
            continue
        fixed = tuple(_placement(gpu, instance) for instance in group)
        try:
            place(geometry, layout, fixed)
        except NoPlacement:
            continue
        return group
    return ()


def _by_preference(
    instances: list[MigInstance], held: Collection[str]
) -> Iterator[tuple[MigInstance, ...]]:
    """Yield every group of instances, at most 2⁷ of a GPU, the best first."""
    groups = [
        group for count in range(len(instances), 0, -1) for group in combinations(instances, count)
    ]
    # The sort is stable: among equals the larger group, then the one that starts first.
    groups.sort(key=lambda group: -sum(instance.uuid in held for instance in group))
    yield from groups


def _placement(gpu: Gpu, instance: MigInstance) -> Placement:
    return Placement(instance.start, instance.size, profile_name(gpu, instance) or "")


def _placed(
    geometry: MigGeometry, layout: Mapping[str, int], fixed: tuple[Placement, ...]
) -> tuple[Placement, ...]:
    try:
        return place(geometry, layout, fixed)
    except NoPlacement as problem:
        raise CannotPartition(str(problem)) from None
