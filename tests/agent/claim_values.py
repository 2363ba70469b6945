"""GPUs that claims are offered, and what claims hold of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from divvy.agent.claims.record import ClaimRecord, ClaimState, HeldClaim, HeldDevice
from divvy.model.claim_devices import claimable_gpu
from divvy.model.claims import Claims
from divvy.model.gpu_models import gpu_model
from divvy.model.offered_gpu import OfferedGpu

BY_SIZE = {"shares": {}}
ON_DEMAND = {"shares": {}, "mig": ["1g.5gb", "2g.10gb", "3g.20gb"]}
MEMORY = 40960


def offered_gpu(index: int = 0, claims: Any = BY_SIZE, model: str = "A100-SXM4-40GB") -> OfferedGpu:
    known = gpu_model(model)
    claimable = claimable_gpu(f"GPU-{index}", MEMORY, known, Claims.model_validate(claims))
    return OfferedGpu(claimable, index, known.product, known.architecture, simulated=True)


def held(
    gpu: OfferedGpu,
    suffix: str,
    memory: int = MEMORY,
    cores: int = 100,
    has_instance: bool = False,
    **sharing: Any,
) -> HeldDevice:
    """Hold a device of a GPU by the end of its name: "" is the whole GPU."""
    name = gpu.uuid.lower() + suffix
    device = next(
        offered_device for offered_device in gpu.gpu.devices if offered_device.name == name
    )
    share_id = "0123456789" if device.share is not None else ""
    sharing = replace(gpu.sharing, memory_mib=memory, weight=cores, **sharing)
    return HeldDevice("gpu", "node/divvy", device, sharing, share_id, has_instance)


def claim(name: str, *devices: HeldDevice, prepared: bool = True) -> HeldClaim:
    pods = ((name, f"pod-uid-{name}"),)
    state = ClaimState.PREPARE_COMPLETED if prepared else ClaimState.PREPARE_STARTED
    return HeldClaim(f"uid-{name}", "default", name, devices, pods, state)


def claim_record(*gpus: OfferedGpu, claims: tuple[HeldClaim, ...] = ()) -> ClaimRecord:
    return ClaimRecord(
        {gpu.uuid: gpu for gpu in gpus}, {held_claim.uid: held_claim for held_claim in claims}
    )
