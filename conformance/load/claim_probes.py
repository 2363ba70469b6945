"""Look around on a GPU by a claim: a small share beside others, or the whole GPU if idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.cluster.pods import Outcome, PodNamespace
from conformance.evidence import Verdict
from conformance.implementation import Implementation
from conformance.load.claims import Size, claim_spec, resource_claim, rounded, share_request
from conformance.observe.device_memory import LIMIT_DEVIATION_MIB, MAX_DEVIATION
from conformance.observe.identities import visible_devices
from conformance.observe.probes import PARTS, adds, burns, part, script, visible_memory
from conformance.promise import ClaimPromise
from conformance.skips import not_applicable, not_made
from divvy.model.api_names import CLAIMS_DRIVER
from divvy.model.claim_names import UUID
from divvy.model.gpu_models import GpuModel
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice

# As much as a CUDA context and a small computation take on any driver, and hardly any time.
_SMALL_MIB, _SMALL_CORES = 1024, 5
_STARTED = 120
_BURN = {"burn": "gpu-burn -m 64 -stts 1 2"}


@dataclass(frozen=True)
class ClaimProbe:
    """What a pod saw of a GPU that it claimed: ``memory_mib`` is the share's, None for all."""

    gpu: ClaimedGpu
    memory_mib: int | None
    outcome: Outcome


def small_claim(
    promise: ClaimPromise, gpu: ClaimedGpu, implementation: Implementation
) -> tuple[dict[str, Any], int | None]:
    """Return the specification of a claim that disturbs no pod, and its MiB: None for a whole GPU.

    Skips the check if there is no room, or if all shares are for tenants.
    """
    words = [holder.words for _, holder in gpu.holders]
    shares = [device for device in gpu.devices if device.kind == "share"]
    open_shares = [device for device in shares if device.tenant is None]
    if not shares:
        claims = promise.node.plan.gpus[promise.index].claims
        if implementation.is_divvy and claims is not None and claims.shares is not None:
            not_made(f"{gpu.name} offers no shares, and its profile has some: see CLM-01")
        if words:
            not_made(f"{gpu.name} has no shares, and is held by {', '.join(words)}")
        return whole_claim(gpu, implementation), None
    if not open_shares:
        not_applicable("the profile's shares are only for its tenants: CLM-08 has some")
    total = promise.node.plan.gpus[promise.index].model.memory_mib
    size = Size(rounded(min(_SMALL_MIB, total // 4), open_shares[0].step_mib), _SMALL_CORES)
    if lacking := _lacking(gpu, open_shares[0], size, divides_time=implementation.divides_time):
        not_made(f"{gpu.name} has no room for {lacking}: held by {', '.join(words)}")
    very_gpu = _selectors(gpu, implementation)
    return claim_spec({**share_request(implementation, size), **very_gpu}), size.memory_mib


def _lacking(gpu: ClaimedGpu, share: LiveDevice, size: Size, *, divides_time: bool) -> str:
    """Return what a small share needs and the GPU has not left, "" if it has room."""
    holders = [holder for _, holder in gpu.holders]
    memory_mib = sum(holder.memory_mib or 0 for holder in holders)
    cores = sum(holder.cores or 0 for holder in holders)
    has_whole_claim = any(holder.memory_mib is None for holder in holders)
    if has_whole_claim or memory_mib + size.memory_mib > share.memory_mib:
        return f"{size.memory_mib} MiB"
    if divides_time and cores + size.cores > share.cores:
        return f"{size.cores} % of its time"
    return "one share more" if len(holders) >= share.most else ""


def whole_claim(gpu: ClaimedGpu, implementation: Implementation) -> dict[str, Any]:
    """Return the specification of a claim for all of this very GPU."""
    very_gpu = _selectors(gpu, implementation)
    return claim_spec({"deviceClassName": implementation.gpu_class, **very_gpu})


def _selectors(gpu: ClaimedGpu, implementation: Implementation) -> dict[str, Any]:
    driver = implementation.dra_driver or CLAIMS_DRIVER
    expression = f'device.attributes["{driver}"].{UUID} == "{gpu.uuid}"'
    return {"selectors": [{"cel": {"expression": expression}}]}


def look_by_claim(
    pods: PodNamespace,
    promise: ClaimPromise,
    gpu: ClaimedGpu,
    claim: tuple[dict[str, Any], int | None],
    command: Sequence[str] | None = None,
) -> ClaimProbe:
    """Run every look at a device, or a command, in a pod with this claim."""
    spec, memory_mib = claim
    run = command or ["/bin/sh", "-c", script(PARTS if memory_mib else {**PARTS, **_BURN})]
    with resource_claim(pods, spec) as name:
        outcome = pods.run(promise.node.name, run, None, _STARTED, claim=name)
    return ClaimProbe(gpu, memory_mib, outcome)


def computes(probe: ClaimProbe) -> Verdict:
    """Judge what a GPU has computed."""
    vector_add = part(probe.outcome, "vector-add")
    expected = "cuda-vector-add: exit code 0, `Test PASSED`"
    actual = expected if adds(vector_add) else f"cuda-vector-add: {vector_add}"
    if probe.memory_mib is None:
        burn = part(probe.outcome, "burn")
        expected = f"{expected}; gpu-burn: OK"
        actual = f"{actual}; gpu-burn: {'OK' if burns(burn) else burn}"
    return expected, actual


def sees_its_gpu_only(probe: ClaimProbe) -> Verdict:
    """Judge which devices a pod sees: the GPU of its claim, and nothing beside it."""
    look = part(probe.outcome, "look")
    lines = look.log.splitlines()
    nodes = sum(line.startswith("node /dev/nvidia") for line in lines)
    cuda = sum(line.startswith("cuda ID ") for line in lines)
    seen = ", ".join(visible_devices(look.log)) or str(look)
    return (
        f"1 device file, 1 CUDA device, {probe.gpu.uuid}",
        f"{nodes} device file, {cuda} CUDA device, {seen}",
    )


def has_its_size(probe: ClaimProbe, model: GpuModel) -> Verdict:
    """Judge the memory that tools show: a share's exactly, a whole GPU's as of its model."""
    memory_by_tool = visible_memory(probe.outcome, is_mig=False)
    if model.memory_of_system:
        del memory_by_tool["nvidia-smi"]
    wanted = model.memory_mib if probe.memory_mib is None else probe.memory_mib
    allowed = wanted * MAX_DEVIATION if probe.memory_mib is None else LIMIT_DEVIATION_MIB
    fits = all(mib is not None and abs(mib - wanted) <= allowed for mib in memory_by_tool.values())
    expected = f"{', '.join(memory_by_tool)}: {wanted} MiB within {allowed:.0f} MiB"
    return expected, expected if fits else ", ".join(
        f"{k}: {mib} MiB" for k, mib in memory_by_tool.items()
    )
