"""The tolerance between a device's memory and the plan's."""

from __future__ import annotations

from conformance.check import LIMITED, PARTITIONED
from conformance.promise import DevicePromise
from divvy.model import MEMORY_TOLERANCE, parse_count

# A whole GPU's depends on the driver and on ECC, a MIG device's on the driver alone.
MAX_DEVIATION = MEMORY_TOLERANCE
MAX_DEVIATION_OF_MIG = 0.02
# A limit is Divvy's own number: tools round it to MiB or to millions of bytes.
LIMIT_DEVIATION_MIB = 1


def share_sizes(promise: DevicePromise) -> tuple[int, ...]:
    """Return what the limit of a share can be on this node, in MiB.

    That of the file; and where the file says `auto`, a part of the memory that the driver has
    found, which the agent's label says, and not of the data sheet's.
    """
    planned = (promise.mps and promise.mps.memory_mib) or promise.device.memory_mib or 0
    model, placement = promise.node.plan.gpus[0].model, promise.device.placement
    if placement is None:
        sheet, label = model.memory_mib, "nvidia.com/gpu.memory"
    else:
        profile = model.mig and model.mig.profile(placement.profile)
        sheet = profile.memory_mib if profile else 0
        label = f"{promise.resource.removesuffix('.shared')}.memory"
    there = parse_count(promise.node.labels.get(label)) or sheet
    return tuple(sorted({planned, planned * there // sheet if sheet else planned}))


def allowed_mib(promise: DevicePromise) -> float:
    """Return by how many MiB a device's memory may differ from what is planned."""
    if promise.mode in LIMITED:
        return LIMIT_DEVIATION_MIB
    planned = promise.device.memory_mib or 0
    return planned * (MAX_DEVIATION_OF_MIG if promise.mode in PARTITIONED else MAX_DEVIATION)


def memory_fits(promise: DevicePromise, mib: int | None) -> bool:
    """Return whether a device has the memory of its kind."""
    planned = promise.device.memory_mib or 0
    sizes = share_sizes(promise) if promise.mode in LIMITED else (planned,)
    return mib is not None and any(abs(mib - size) <= allowed_mib(promise) for size in sizes)
