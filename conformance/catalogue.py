"""The checks: what each proves, how binding it is, where it applies, what to do when it fails."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Check:
    """One entry of the catalogue.

    ``level`` is MUST or SHOULD; ``modes`` are those of whole, time-slicing, mig and
    mig+time-slicing in which it applies; ``cncf`` are ids of the CNCF AI conformance
    list to which it contributes.
    """

    id: str
    title: str
    level: str
    modes: tuple[str, ...]
    remedy: str
    needs_hardware: bool = False
    cncf: tuple[str, ...] = ()


WHOLE, SLICED, MIG, MIG_SLICED = "whole", "time-slicing", "mig", "mig+time-slicing"
EVERY = (WHOLE, SLICED, MIG, MIG_SLICED)
SHARED = (SLICED, MIG_SLICED)

_ALL = (
    Check("NODE-01", "the agent reports the driver and follows the stack file", "MUST", EVERY,
          "look at the node's divvy.gpu/status annotation and the agent's log",
          cncf=("driver_runtime_management",)),
    Check("NODE-02", "feature labels describe the GPUs that are there", "MUST", EVERY,
          "another label writer may be at work: see `kubectl get node --show-managed-fields`"),
    Check("NODE-03", "the driver is the version the stack file names", "SHOULD", EVERY,
          "install that driver, or write the installed version into `driver.version`",
          cncf=("driver_runtime_management",)),
    Check("PLUG-01", "nothing is offered that the plan does not promise", "MUST", EVERY,
          "another device plugin may run on the node; a resource of an older profile shows 0"),
    Check("PLUG-02", "allocatable is what the plan promises", "MUST", EVERY,
          "the status annotation says which GPU is not as it should be, and why",
          cncf=("gpu_sharing",)),
    Check("PLUG-03", "one pod more than there are devices stays Pending", "MUST", EVERY,
          "something offers more devices than the plan: compare with PLUG-02"),
    Check("PLUG-04", "two shares for one container are refused", "MUST", SHARED,
          "set failRequestsGreaterThanOne, or accept that a second share gives nothing"),
    Check("PLUG-05", "fractions and requests that are not limits are refused", "MUST", EVERY,
          "the API server does not validate extended resources: is it a real one?"),
    Check("PLUG-06", "a full node refuses a pod that passes the scheduler by", "MUST", EVERY,
          "the kubelet counts other devices than the plan: compare with PLUG-02"),
    Check("WORK-01", "cuda-vector-add passes on a device", "MUST", EVERY,
          "the pod's log has the driver's error name; libraries come from the agent's CDI spec"),
    Check("WORK-02", "gpu-burn computes without an error", "MUST", EVERY,
          "a GPU that computes wrongly must be taken out of service"),
    Check("WORK-03", "nvidia-smi answers in a pod", "SHOULD", EVERY,
          "the CDI spec must name nvidia-smi and libnvidia-ml of the loaded driver"),
    Check("ISO-01", "a pod without a request sees no GPU", "MUST", EVERY,
          "the NVIDIA runtime may be the default and read NVIDIA_VISIBLE_DEVICES: use CDI",
          cncf=("secure_accelerator_access",)),
    Check("ISO-02", "a pod sees its own device and no other", "MUST", EVERY,
          "compare /var/run/cdi/divvy.gpu-gpu.json with the devices in the pod",
          cncf=("secure_accelerator_access",)),
    Check("ISO-03", "devices of pods running at the same time are different ones", "MUST",
          (WHOLE, MIG), "two plugins may serve one GPU: look for a second agent"),
    Check("ISO-04", "shares of one device are the same device, all running at the same time",
          "MUST", SHARED, "the placement policy spreads or packs shares; see `placement`",
          cncf=("gpu_sharing",)),
    Check("ISO-05", "a MIG device refuses memory beyond its slice", "MUST", (MIG, MIG_SLICED),
          "the pod may see the whole GPU: compare with ISO-02"),
    Check("ISO-06", "a device's memory is what the plan says", "MUST", EVERY,
          "the plan's figures come from the model's data sheet; drivers differ by a few MiB"),
    Check("OBS-01", "the agent's metrics name every GPU", "SHOULD", EVERY,
          "the Service divvy-agent must reach the agent's pod on port 9410",
          cncf=("accelerator_metrics",)),
    Check("DISR-01", "a restart of the agent changes nothing for running pods", "MUST", EVERY,
          "see the agent's log from before and after"),
    Check("HW-01", "compute share follows the slice", "SHOULD", (MIG,),
          "only hardware can show it", needs_hardware=True),
    Check("HW-02", "memory bandwidth follows the slice", "SHOULD", (MIG,),
          "only hardware can show it", needs_hardware=True),
    Check("HW-03", "a fault in one MIG device leaves its neighbours alone", "SHOULD", (MIG,),
          "only hardware can show it", needs_hardware=True),
)  # fmt: skip
CATALOGUE = {check.id: check for check in _ALL}


def check(identity: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of a check."""
    return pytest.mark.check(CATALOGUE[identity])
