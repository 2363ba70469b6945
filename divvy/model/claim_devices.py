"""The devices that a GPU offers to claims: whole, shares, MIG placements, and their counters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divvy.model.claims import Claims, Shares
from divvy.model.gpu_models import GpuModel, MigGeometry, MigProfile
from divvy.model.mig_names import resource_part
from divvy.model.mig_placement import MEDIA_EXTENSIONS

Kind = Literal["gpu", "share", "mig"]
COMPUTE, MEDIA, WHOLE = "compute-slices", "media", "whole"
MEDIA_ENGINES, MEMORY_SLICE = "media-engines", "memory-slice-"
CORES = 100
# The API server takes a range of sizes only if one more step fits above the least size.
LEAST_STEPS = 2


@dataclass(frozen=True)
class ShareSize:
    """What a share can be: MiB in all, their step, what a request without a size gets (MiB)."""

    memory_mib: int
    step_mib: int
    default_mib: int
    default_cores: int
    most: int


@dataclass(frozen=True)
class ClaimDevice:
    """One device of a slice.

    ``uuid`` is the GPU's. ``share`` is set for shares, which several claims can hold at once;
    ``whole`` says that a request for a whole GPU may take the device. ``placement`` is the first
    memory slice of a MIG device. ``consumes`` are the counters of its GPU that it takes, once
    however many claims hold it; none if the GPU has no counters.
    """

    name: str
    kind: Kind
    uuid: str
    memory_mib: int
    whole: bool = False
    share: ShareSize | None = None
    tenant: str | None = None
    profile: MigProfile | None = None
    placement: int | None = None
    consumes: Mapping[str, int] | None = None


@dataclass(frozen=True)
class ClaimableGpu:
    """What one GPU offers: its counters (none if nothing excludes anything) and its devices."""

    uuid: str
    counters: Mapping[str, int] | None
    devices: tuple[ClaimDevice, ...]


def claimable_gpu(
    uuid: str, memory_mib: int, model: GpuModel | None, claims: Claims
) -> ClaimableGpu:
    """Return what a GPU offers to claims, in the order in which a scheduler should try it.

    ``memory_mib`` is what NVML reports; ``model`` is None for a GPU that no data describes, which
    has no MIG. MIG profiles that the model lacks are left out, and shares where the GPU holds
    fewer than LEAST_STEPS of their size.
    """
    if claims.shares is not None and not has_shares(memory_mib, claims.shares):
        claims = claims.model_copy(update={"shares": None})
    if not claims.counted:
        if claims.shares is None:
            whole = ClaimDevice(gpu_name(uuid), "gpu", uuid, memory_mib, whole=True)
            return ClaimableGpu(uuid, None, (whole,))
        return ClaimableGpu(uuid, None, (_share(uuid, memory_mib, claims.shares, None, None),))
    geometry = model.mig if model is not None and claims.mig else None
    counters = _counters(geometry)
    devices = [ClaimDevice(gpu_name(uuid), "gpu", uuid, memory_mib, whole=True, consumes=counters)]
    if claims.shares is not None:
        tenants: Sequence[str | None] = claims.tenants or (None,)
        for tenant in tenants:
            devices.append(_share(uuid, memory_mib, claims.shares, tenant, counters))
    if geometry is not None:
        devices += _mig_devices(uuid, geometry, claims.mig)
    return ClaimableGpu(uuid, counters, tuple(devices))


def gpu_name(uuid: str) -> str:
    """Return the name of a GPU's counters and own device; those of its parts begin with it."""
    return uuid.lower()


def memory_slice(number: int) -> str:
    """Return the name of the counter of one memory slice."""
    return f"{MEMORY_SLICE}{number}"


def _share(
    uuid: str,
    memory_mib: int,
    shares: Shares,
    tenant: str | None,
    counters: Mapping[str, int] | None,
) -> ClaimDevice:
    step, total = shares.memory.step_mib, _share_memory(memory_mib, shares)
    default = shares.default_mib
    rounded = total if default is None else min(total, -(-default // step) * step)
    # Without a size of its own a request takes the GPU; with one it leaves time for the others.
    cores = CORES if default is None else max(1, CORES * rounded // total)
    suffix = "-share" if tenant is None else f"-share-{tenant}"
    return ClaimDevice(
        gpu_name(uuid) + suffix,
        "share",
        uuid,
        memory_mib,
        whole=counters is None,
        share=ShareSize(total, step, rounded, cores, shares.max),
        tenant=tenant,
        consumes=counters,
    )


def has_shares(memory_mib: int, shares: Shares) -> bool:
    """Return whether a GPU holds enough steps of a share's size for the API server to take it."""
    return shares.memory.of_gpu(memory_mib) >= LEAST_STEPS * shares.memory.step_mib


def _share_memory(memory_mib: int, shares: Shares) -> int:
    """Return the memory that all shares of a GPU have together, in whole steps (MiB)."""
    step = shares.memory.step_mib
    return shares.memory.of_gpu(memory_mib) // step * step


def _counters(geometry: MigGeometry | None) -> Mapping[str, int]:
    if geometry is None:
        return {WHOLE: 1}
    counters = {memory_slice(number): 1 for number in range(geometry.memory_slices)}
    counters[COMPUTE] = geometry.compute_slices
    if any(MEDIA_EXTENSIONS in profile.attributes for profile in geometry.profiles):
        counters[MEDIA] = 1
    engines = _media_engines(geometry)
    if engines:
        counters[MEDIA_ENGINES] = engines
    return counters


def _media_engines(geometry: MigGeometry) -> int:
    """Return how many media engines of a kind the MIG devices of a card share.

    0 if each has those of its slices, so that the slices alone say what fits.
    """
    whole = geometry.whole
    if whole is None:
        return 0
    parts = [
        profile for profile in geometry.profiles if profile.memory_slices < geometry.memory_slices
    ]
    return whole.decoders if any(part.decoders == whole.decoders for part in parts) else 0


def _mig_devices(uuid: str, geometry: MigGeometry, names: Sequence[str]) -> list[ClaimDevice]:
    """List every placement: the smallest first, each from its lowest start, so that they pack."""
    profiles = [profile for profile in geometry.profiles if profile.name in names]
    profiles.sort(key=lambda known: (known.memory_slices, known.compute_slices, known.name))
    engines = _media_engines(geometry) > 0
    return [_mig(uuid, profile, start, engines) for profile in profiles for start in profile.starts]


def _mig(uuid: str, profile: MigProfile, start: int, engines: bool) -> ClaimDevice:
    slices = range(start, start + profile.memory_slices)
    consumes = {memory_slice(number): 1 for number in slices}
    consumes[COMPUTE] = profile.compute_slices
    if MEDIA_EXTENSIONS in profile.attributes:
        consumes[MEDIA] = 1
    if engines and profile.decoders:
        consumes[MEDIA_ENGINES] = profile.decoders
    part = resource_part(profile.name).replace(".", "")
    return ClaimDevice(
        f"{gpu_name(uuid)}-mig-{part}-{start}",
        "mig",
        uuid,
        profile.memory_mib,
        profile=profile,
        placement=start,
        consumes=consumes,
    )
