"""The checks: what each proves, how binding it is, where it applies, what to do when it fails."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from divvy.model.contract import (
    AGENT,
    CDI_FILE,
    CDI_FOLDER,
    METRICS_PORT,
    STATUS_ANNOTATION,
    Mode,
)


@dataclass(frozen=True)
class Check:
    """One entry of the catalogue.

    ``level`` is MUST or SHOULD; ``modes`` are those in which it applies: whole, time-slicing,
    mig and mig+time-slicing, the shared ones also with +limit, claims, or a bare host; ``cncf`` ids
    of the CNCF AI conformance list to which it contributes.
    """

    id: str
    title: str
    level: str
    modes: tuple[str, ...]
    remedy: str
    needs_hardware: bool = False
    cncf: tuple[str, ...] = ()


WHOLE, MIG = Mode.WHOLE, Mode.MIG
LIMITED = (Mode.TIME_SLICING_LIMIT, Mode.MIG_TIME_SLICING_LIMIT)
SHARED = (Mode.TIME_SLICING, Mode.MIG_TIME_SLICING, *LIMITED)
PARTITIONED = (Mode.MIG, Mode.MIG_TIME_SLICING, Mode.MIG_TIME_SLICING_LIMIT)
EVERY = (Mode.WHOLE, Mode.MIG, *SHARED)
CLAIMED = (Mode.CLAIMS,)
BARE = ("bare host",)

_ALL = (
    Check("NODE-01", "the agent is ready, on the configuration of the stack file", "MUST", EVERY,
          f"look at the node's {STATUS_ANNOTATION} annotation and the agent's log",
          cncf=("driver_runtime_management",)),
    Check("NODE-02", "feature labels describe the GPUs that are there", "MUST", EVERY,
          "another label writer may be running: see `kubectl get node --show-managed-fields`"),
    Check("NODE-03", "the driver is the version the stack file names", "SHOULD", EVERY,
          "install that driver, or write the installed version into `driver.version`",
          cncf=("driver_runtime_management",)),
    Check("NODE-04", "the CDI specification names every device, by files that exist", "MUST", EVERY,
          "the agent rewrites it within a minute; `runtime.configure` switches CDI on"),
    Check("NODE-05", "the nodes of each pool are there, and follow the stack file", "SHOULD", EVERY,
          "see `divvy diff --live`; a label on a node overrides the file until it is removed"),
    Check("NODE-06", "the driver's kernel module and mounted libraries are of one version", "MUST",
          EVERY, "after an update of the driver, restart the machine or reload the kernel module",
          cncf=("driver_runtime_management",)),
    Check("NODE-07", "no GPU's memory has errors that wait for a reset or a repair", "SHOULD",
          EVERY, "see `nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT`; reset or replace it",
          cncf=("driver_runtime_management",)),
    Check("NODE-08", "GPUs behind NVSwitches are part of their fabric", "SHOULD", EVERY,
          "see `nvidia-smi -q` (Fabric) and nvidia-fabricmanager: it is of the driver's version",
          cncf=("driver_runtime_management",)),
    Check("PLUG-01", "nothing is advertised that the plan does not promise", "MUST", EVERY,
          "another device plugin may run on the node; a resource of an older profile shows 0"),
    Check("PLUG-02", "allocatable is what the plan promises", "MUST", EVERY,
          "the status annotation says which GPU is not as it should be, and why",
          cncf=("gpu_sharing",)),
    Check("PLUG-03", "one pod more than there are devices stays Pending", "MUST", EVERY,
          "something advertises more devices than the plan: compare with PLUG-02"),
    Check("PLUG-04", "two replicas for one container are refused", "MUST", SHARED,
          "set failRequestsGreaterThanOne, or accept that a second replica gives nothing"),
    Check("PLUG-05", "fractions and requests that are not limits are refused", "MUST", EVERY,
          "the API server does not validate extended resources: is it a real one?"),
    Check("PLUG-06", "a full node refuses a pod that bypasses the scheduler", "MUST", EVERY,
          "the kubelet counts other devices than the plan: compare with PLUG-02"),
    Check("PLUG-07", "a pod that bypasses the scheduler is served where a device is free", "MUST",
          EVERY, "see the pod's events, and the agent's log on that node"),
    Check("PLUG-08", "a pod with several devices gets that many distinct ones", "MUST",
          (WHOLE, MIG),
          "compare with ISO-03: two devices may be the same one"),
    Check("PLUG-09",
          "devices are free again after init containers, restarts, forced deletion, many pods",
          "MUST", EVERY, "compare the kubelet's list of holders with the pods that are there"),
    Check("PLUG-10", "nobody else offers the same GPUs", "SHOULD", EVERY,
          "a GPU belongs to one device plugin or DRA driver: remove the other from these nodes"),
    Check("PLUG-11", "the kubelet knows the NUMA node of every device", "SHOULD", EVERY,
          "the Topology Manager aligns pods by it: see numa_node of the GPU's PCI device in /sys"),
    Check("WORK-01", "cuda-vector-add passes on a device", "MUST", EVERY,
          "the pod's log has the driver's error name; libraries come from the agent's CDI spec"),
    Check("WORK-02", "gpu-burn computes without an error on every device", "MUST", EVERY,
          "a GPU that computes wrongly must be taken out of service"),
    Check("WORK-03", "nvidia-smi answers in a pod", "SHOULD", EVERY,
          "the CDI spec must name nvidia-smi and libnvidia-ml of the loaded driver"),
    Check("WORK-04", "a vectorAdd image from elsewhere passes", "SHOULD", EVERY,
          "images with the CUDA runtime inside need a real driver that is new enough for them"),
    Check("WORK-05", "a gpu-burn image from elsewhere computes without an error", "SHOULD", EVERY,
          "a GPU that computes wrongly must be taken out of service"),
    Check("WORK-06", "a framework trains within its share, beside others on the GPU", "MUST",
          LIMITED, "what computes wrong, take out of service; for its memory compare with ISO-11",
          cncf=("gpu_sharing",)),
    Check("WORK-07", "every device adds vectors, and has the memory of its kind", "MUST", EVERY,
          "a GPU that computes wrongly must be taken out of service; the evidence names it"),
    Check("ISO-01", "a pod without a request sees no GPU, whatever it sets", "MUST", EVERY,
          "the NVIDIA runtime may be the default and read NVIDIA_VISIBLE_DEVICES: use CDI",
          cncf=("secure_accelerator_access",)),
    Check("ISO-02", "a pod sees its own device and no other", "MUST", EVERY,
          f"compare {CDI_FOLDER}/{CDI_FILE} with the devices in the pod",
          cncf=("secure_accelerator_access",)),
    Check("ISO-03", "devices of pods running at the same time are different ones", "MUST",
          (WHOLE, MIG), "two plugins may serve one GPU: look for a second agent"),
    Check("ISO-04", "replicas of one device are the same device, all running at the same time",
          "MUST", SHARED, "the placement policy spreads or packs replicas; see `placement`",
          cncf=("gpu_sharing",)),
    Check("ISO-05", "a MIG device refuses memory beyond its slice", "MUST", PARTITIONED,
          "the pod may see the whole GPU: compare with ISO-02"),
    Check("ISO-06", "a device's memory is what the plan says", "MUST", EVERY,
          "the plan's figures come from the model's data sheet; drivers differ by a few MiB"),
    Check("ISO-07", "a pod opens no device by its number, with the usual rights", "MUST", EVERY,
          "the container runtime must confine devices by control group: is the pod privileged?",
          cncf=("secure_accelerator_access",)),
    Check("ISO-08", "nvidia-smi shows a MIG device's slice, a limited share, else the whole card",
          "SHOULD", EVERY, "compare with ISO-02; drivers differ by a few MiB"),
    Check("ISO-09", "nothing of the host's is writable in a pod with a device", "MUST", EVERY,
          "each mount of /var/run/cdi/divvy.gpu-gpu.json is `ro`; does something else inject too?",
          cncf=("secure_accelerator_access",)),
    Check("ISO-10", "a share refuses memory beyond its limit, whichever processes ask", "MUST",
          LIMITED, "the pod may have the driver's own library: compare with ISO-11",
          cncf=("gpu_sharing",)),
    Check("ISO-11", "total memory, free memory and nvidia-smi all show the share", "MUST", LIMITED,
          "the limiter's libraries must come before the driver's: see docs/limiter.md"),
    Check("ISO-12", "use that bypasses the limiter is noticed", "MUST", LIMITED,
          "the agent's memory watch reads the host's processes: see its log"),
    Check("ISO-13", "a pod sees the very device that the kubelet allocated to it", "MUST", EVERY,
          f"compare {CDI_FOLDER}/{CDI_FILE} with the devices that nvidia-smi lists on the node",
          cncf=("secure_accelerator_access",)),
    Check("CLM-01", "claims get every GPU, in each way that the plan promises", "MUST", CLAIMED,
          "the status annotation says which GPU is not as it should be; see `divvy diff --live`",
          cncf=("dra_support",)),
    Check("CLM-02", "a share has the size that its pod asked for, and refuses more", "MUST",
          CLAIMED, "the limiter's libraries must come before the driver's: see docs/limiter.md",
          cncf=("gpu_sharing",)),
    Check("CLM-03", "two shares of one container are on two GPUs, each with its size", "MUST",
          CLAIMED, "see the claim of the pod: its results name the devices"),
    Check("CLM-04", "what no GPU can give is refused when the pod is created, with the reason",
          "MUST", CLAIMED, "the admission policies of Divvy are missing or not bound: `divvy up`"),
    Check("CLM-05", "a whole GPU by claim is one whole GPU", "MUST", CLAIMED,
          "see `divvy why` for a pod that waits; compare with CLM-02",
          cncf=("secure_accelerator_access",)),
    Check("CLM-06", "a burst of shares of many sizes never takes more than a GPU has", "MUST",
          CLAIMED, "shares need Kubernetes 1.36.2 or newer: older ones allocate a device twice"),
    Check("CLM-07", "a MIG device is made when a pod asks for it, and goes with the pod", "MUST",
          CLAIMED, "the pod's events name what the node's driver waits for"),
    Check("CLM-08", "shares of two tenants are never on one GPU", "MUST", CLAIMED,
          "is the namespace labelled divvy.gpu/tenant? see the classes of the pod's claims",
          cncf=("gpu_sharing",)),
    Check("CLM-09", "a kubelet that asked about a claim too early asks again within seconds",
          "SHOULD", CLAIMED, "set `syncFrequency: 10s` in the kubelet's configuration"),
    Check("OBS-01", "the agent's metrics name every GPU", "SHOULD", EVERY,
          "compare with `nvidia-smi -L` on the node, then see the agent's log",
          cncf=("accelerator_metrics",)),
    Check("OBS-02", "the agent's metrics name the pod that holds a device", "SHOULD", EVERY,
          "the agent asks the kubelet: is /var/lib/kubelet/pod-resources in its pod?",
          cncf=("accelerator_metrics",)),
    Check("OBS-03", "the agent's metrics report the memory of a pod that is alone on a device",
          "SHOULD", (WHOLE, MIG), "compare with nvidia-smi on the node, then with OBS-02",
          cncf=("accelerator_metrics",)),
    Check("OBS-04", "metrics reach a scraper in another namespace, through the Service", "SHOULD",
          EVERY, f"does a NetworkPolicy keep readers from port {METRICS_PORT} of {AGENT}?",
          cncf=("accelerator_metrics",)),
    Check("OBS-05", "each pod of a shared device has a series of its own in the agent's metrics",
          "SHOULD", SHARED, "the agent asks the kubelet who holds a replica: see its log",
          cncf=("accelerator_metrics",)),
    Check("DISR-01", "a restart of the agent changes nothing for running pods", "MUST", EVERY,
          "see the agent's log from before and after"),
    Check("DISR-02", "a restart of the kubelet changes nothing for running pods", "MUST", EVERY,
          "see the kubelet's log; its service must leave control groups of pods alone"),
    Check("DISR-03", "a change of profile and back leaves running pods alone", "MUST", EVERY,
          "the status annotation says what the agent waits for; see `change` in the stack file"),
    Check("DISR-04", "a broken GPU is withdrawn, the others serve, and it is advertised again",
          "MUST", EVERY, "see `health` in the stack file, and the reason in the status annotation"),
    Check("DISR-05", "a holder of an idle MIG device keeps it through a restart of the kubelet",
          "MUST", PARTITIONED,
          "another tool may partition the GPUs; Divvy waits for every holder of a device"),
    Check("DISR-06", "an init container keeps its MIG device while a change of profile waits",
          "MUST", PARTITIONED,
          "another tool may partition the GPUs; Divvy waits for init containers too"),
    Check("DISR-07", "a reload of systemd leaves running pods their devices", "MUST", EVERY,
          "the runtime must be given device nodes by CDI, not by a hook: see `runtime.configure`"),
    Check("DISR-08", "agent, kubelet and runtime restart at once, as in a reboot", "MUST", EVERY,
          "see the logs of the kubelet and of the agent from before and after"),
    Check("HW-01", "neighbours leave a MIG device its compute", "SHOULD", (MIG,),
          "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`", needs_hardware=True),
    Check("HW-02", "neighbours leave a MIG device its memory bandwidth", "SHOULD", (MIG,),
          "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`", needs_hardware=True),
    Check("HW-03", "a broken program in one MIG device leaves its neighbours alone", "SHOULD",
          (MIG,), "see the kernel's log for the XID, and the driver's release notes",
          needs_hardware=True),
    Check("HW-04", "all replicas of a device make progress under full load", "SHOULD", SHARED,
          "time-slicing gives no fixed share: use MIG where one is needed", needs_hardware=True),
    Check("HW-05", "shares with `compute` get their parts of the GPU's time", "SHOULD", LIMITED,
          "see `divvy_share_waited_seconds` and `divvy_share_gate_opened` of the agent",
          needs_hardware=True),
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
