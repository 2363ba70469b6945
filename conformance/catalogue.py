"""The checks: what each proves, how binding it is, where it applies, what to do when it fails."""

from __future__ import annotations

from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Check:
    """One entry of the catalogue.

    ``level`` is MUST or SHOULD; ``modes`` are those of whole, time-slicing, mig and
    mig+time-slicing in which it applies, or a bare host; ``cncf`` are ids of the CNCF AI
    conformance list to which it contributes.
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
BARE = ("bare host",)

_ALL = (
    Check("NODE-01", "the agent reports the driver and follows the stack file", "MUST", EVERY,
          "look at the node's divvy.gpu/status annotation and the agent's log",
          cncf=("driver_runtime_management",)),
    Check("NODE-02", "feature labels describe the GPUs that are there", "MUST", EVERY,
          "another label writer may be at work: see `kubectl get node --show-managed-fields`"),
    Check("NODE-03", "the driver is the version the stack file names", "SHOULD", EVERY,
          "install that driver, or write the installed version into `driver.version`",
          cncf=("driver_runtime_management",)),
    Check("NODE-04", "the CDI specification names every device, by files that exist", "MUST", EVERY,
          "the agent writes it anew within a minute; `runtime.configure` switches CDI on"),
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
    Check("PLUG-07", "a pod that passes the scheduler by is served where a device is free", "MUST",
          EVERY, "see the pod's events, and the agent's log on that node"),
    Check("WORK-01", "cuda-vector-add passes on a device", "MUST", EVERY,
          "the pod's log has the driver's error name; libraries come from the agent's CDI spec"),
    Check("WORK-02", "gpu-burn computes without an error", "MUST", EVERY,
          "a GPU that computes wrongly must be taken out of service"),
    Check("WORK-03", "nvidia-smi answers in a pod", "SHOULD", EVERY,
          "the CDI spec must name nvidia-smi and libnvidia-ml of the loaded driver"),
    Check("WORK-04", "a vectorAdd image from elsewhere passes", "SHOULD", EVERY,
          "images with the CUDA runtime inside need a real driver that is new enough for them"),
    Check("WORK-05", "a gpu-burn image from elsewhere computes without an error", "SHOULD", EVERY,
          "a GPU that computes wrongly must be taken out of service"),
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
    Check("ISO-07", "a pod opens no device by its number, with the usual rights", "MUST", EVERY,
          "the container runtime must confine devices by control group: is the pod privileged?",
          cncf=("secure_accelerator_access",)),
    Check("ISO-08", "nvidia-smi shows the slice of a MIG device, else the whole card", "SHOULD",
          EVERY, "compare with ISO-02; drivers differ by a few MiB"),
    Check("OBS-01", "the agent's metrics name every GPU", "SHOULD", EVERY,
          "the Service divvy-agent must reach the agent's pod on port 9410",
          cncf=("accelerator_metrics",)),
    Check("OBS-02", "the agent's metrics name the pod that holds a device", "SHOULD", EVERY,
          "the agent asks the kubelet: is /var/lib/kubelet/pod-resources in its pod?",
          cncf=("accelerator_metrics",)),
    Check("OBS-03", "the agent's metrics tell the memory of a pod that is alone on a device",
          "SHOULD", (WHOLE, MIG), "compare with nvidia-smi on the node, then with OBS-02",
          cncf=("accelerator_metrics",)),
    Check("DISR-01", "a restart of the agent changes nothing for running pods", "MUST", EVERY,
          "see the agent's log from before and after"),
    Check("DISR-02", "a restart of the kubelet changes nothing for running pods", "MUST", EVERY,
          "see the kubelet's log; its service must leave control groups of pods alone"),
    Check("DISR-03", "a change of profile and back leaves running pods alone", "MUST", EVERY,
          "the status annotation says what the agent waits for; see `change` in the stack file"),
    Check("DISR-04", "a broken GPU is withdrawn, and offered again when it is well", "MUST", EVERY,
          "see `health` in the stack file, and the reason in the status annotation"),
    Check("HW-01", "neighbours leave a MIG device its compute", "SHOULD", (MIG,),
          "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`", needs_hardware=True),
    Check("HW-02", "neighbours leave a MIG device its memory bandwidth", "SHOULD", (MIG,),
          "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`", needs_hardware=True),
    Check("HW-03", "a broken program in one MIG device leaves its neighbours alone", "SHOULD",
          (MIG,), "see the kernel's log for the XID, and the driver's release notes",
          needs_hardware=True),
    Check("HW-04", "shares of one device that all burn all advance", "SHOULD", SHARED,
          "time-slicing gives no fixed share: use MIG where one is needed", needs_hardware=True),
    Check("BARE-01", "the driver's parts are of one version", "MUST", BARE,
          "after an update of the driver, restart the machine or reload the kernel module",
          cncf=("driver_runtime_management",)),
    Check("BARE-02", "discovery finds what nvidia-smi lists", "MUST", BARE,
          "its evidence has NVML's error"),
    Check("BARE-03", "cuda-vector-add passes on every device", "MUST", BARE,
          "its log has the driver's error name"),
    Check("BARE-04", "a device's memory is that of its kind", "MUST", BARE,
          "the figures come from the model's data sheet; drivers differ by a few MiB"),
    Check("BARE-05", "gpu-burn computes without an error on every device", "MUST", BARE,
          "a GPU that computes wrongly must be taken out of service"),
    Check("BARE-06", "a MIG device refuses memory beyond its slice", "MUST", BARE,
          "compare the MIG device's memory in nvidia-smi"),
)  # fmt: skip
CATALOGUE = {check.id: check for check in _ALL}


def check(identity: str) -> pytest.MarkDecorator:
    """Mark a test as the proof of a check."""
    return pytest.mark.check(CATALOGUE[identity])
