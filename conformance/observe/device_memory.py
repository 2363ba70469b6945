"""How far a device's memory may be from what the plan says."""

from __future__ import annotations

from conformance.catalogue import PARTITIONED
from conformance.promise import DevicePromise
from divvy.model import MEMORY_TOLERANCE

# A whole GPU's depends on the driver and on ECC, a MIG device's on the driver alone.
MAX_DEVIATION = MEMORY_TOLERANCE
MAX_DEVIATION_OF_MIG = 0.02


def memory_fits(promise: DevicePromise, mib: int | None) -> bool:
    """Return whether a device has the memory of its kind."""
    planned = promise.device.memory_mib or 0
    allowed = MAX_DEVIATION_OF_MIG if promise.mode in PARTITIONED else MAX_DEVIATION
    return mib is not None and abs(mib - planned) <= planned * allowed
