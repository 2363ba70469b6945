"""The plan of a claim's MIG device: MIG mode, and the instance at its placement."""

from __future__ import annotations

from collections.abc import Iterable

from divvy.agent.claims.record import ClaimRecord, HeldDevice
from divvy.agent.gpu.hardware import Gpu, MigInstance
from divvy.agent.gpu.mig_plan import MigPlan, profile_name
from divvy.model import Placement


class ForeignInstance(Exception):
    """MIG instances that no claim has made are in the way; the text says which."""


def plan_device(gpu: Gpu, held: HeldDevice, record: ClaimRecord) -> MigPlan:
    """Return what makes a GPU ready for a device; raises ForeignInstance.

    Whatever else claims hold of the GPU has been found to leave room for it.
    """
    foreign = foreign_instances(gpu, record)
    if held.device.profile is None:
        if foreign:
            raise ForeignInstance(_sentence(gpu, foreign))
        if not gpu.mig_mode and not gpu.mig_pending:
            return MigPlan(gpu.uuid)
        return MigPlan(gpu.uuid, mode=False)
    if not gpu.mig_mode:
        return MigPlan(gpu.uuid, mode=True, create=(_placement(held),))
    present = instance_of(gpu, held)
    if present is not None and held.has_instance:
        complete = (present,) if present.uuid is None else ()
        return MigPlan(gpu.uuid, keep=(present,), complete=complete)
    colliding = [instance for instance in foreign if _overlap(instance, held)]
    if colliding:
        raise ForeignInstance(_sentence(gpu, colliding))
    return MigPlan(gpu.uuid, create=(_placement(held),))


def plan_return(gpu: Gpu, held: HeldDevice) -> MigPlan:
    """Return what gives a device back: the instance that was made for it goes, the mode stays."""
    present = instance_of(gpu, held) if held.has_instance else None
    return MigPlan(gpu.uuid, destroy=() if present is None else (present,))


def instance_of(gpu: Gpu, held: HeldDevice) -> MigInstance | None:
    """Return the instance at a device's placement and of its profile, or None."""
    profile = held.device.profile
    if profile is None or not gpu.mig_mode:
        return None
    wanted = (held.device.placement, profile.profile_id)
    return next(
        (instance for instance in gpu.instances if (instance.start, instance.profile_id) == wanted),
        None,
    )


def device_uuid(gpu: Gpu, held: HeldDevice) -> str | None:
    """Return the UUID that CUDA knows of a device, None if it does not exist now."""
    if held.device.profile is None:
        return None if gpu.mig_mode else gpu.uuid
    instance = instance_of(gpu, held)
    return None if instance is None else instance.uuid


def foreign_instances(gpu: Gpu, record: ClaimRecord) -> tuple[MigInstance, ...]:
    """Return the instances of an offered GPU that are no claim's."""
    if gpu.uuid not in record.offered or not gpu.mig_mode:
        return ()
    ours = [
        held for claim in record.of_gpu(gpu.uuid) for held in claim.devices if held.has_instance
    ]
    known = [instance_of(gpu, held) for held in ours if held.uuid == gpu.uuid]
    return tuple(instance for instance in gpu.instances if instance not in known)


def foreign_reason(gpu: Gpu, record: ClaimRecord) -> str:
    """Return which instances of an offered GPU are no claim's, or ""."""
    foreign = foreign_instances(gpu, record)
    return _sentence(gpu, foreign) if foreign else ""


def _placement(held: HeldDevice) -> Placement:
    profile, start = held.device.profile, held.device.placement
    assert profile is not None
    assert start is not None
    return Placement(start, profile.memory_slices, profile.name)


def _overlap(instance: MigInstance, held: HeldDevice) -> bool:
    mine = _placement(held).slices
    return not mine.isdisjoint(range(instance.start, instance.start + instance.size))


def _sentence(gpu: Gpu, foreign: Iterable[MigInstance]) -> str:
    listed = ", ".join(
        f"{profile_name(gpu, instance) or 'an instance'} at memory slice {instance.start}"
        for instance in foreign
    )
    return (
        f"GPU {gpu.index} has MIG instances that no claim created: {listed}. Remove them "
        "(nvidia-smi mig -dci, then -dgi) to return the GPU to service"
    )
