"""The implementation under test that shares the cluster's GPUs: Divvy, or another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from divvy.model.api_names import AGENT, CDI_FILE, CDI_FOLDER
from divvy.model.claim_names import GPU_CLASS, NVIDIA, share_class


@dataclass(frozen=True)
class Implementation:
    """One implementation: where it is, what it leaves on nodes, and what cannot be asked of it.

    ``namespace`` None is the stack file's. ``sockets`` is the pattern of its sockets in the
    kubelet's folder, ``cdi_file`` its specification on a node. ``free_labels`` are feature labels
    that it writes whatever the node has, without their domain. ``refusal`` is what a pod is told
    that asks for two replicas. ``names_partitioned_gpus`` says whether that specification has also
    the GPUs that are MIG devices, which no pod gets. ``mps_pipes`` is the folder of an MPS daemon's
    sockets, of a GPU's UUID and the agent's folder ``state``. ``dra_driver`` is the driver's name
    in ResourceSlices, None of a device plugin; ``gpu_class`` and ``share_class`` are the
    DeviceClasses of whole GPUs and of shares, ``divides_time`` says whether a share has per cent of
    a GPU's time.
    ``inapplicable`` says by check why that has no meaning there; a key that ends with "-" stands
    for every check whose id begins so.
    """

    name: str
    title: str
    daemon_set: str
    sockets: str
    cdi_file: str = ""
    refusal: str = ""
    namespace: str | None = None
    free_labels: frozenset[str] = frozenset()
    names_partitioned_gpus: bool = True
    mps_pipes: str = "{state}/mps/{uuid}/pipe"
    dra_driver: str | None = None
    gpu_class: str = GPU_CLASS
    share_class: str = share_class(None)
    divides_time: bool = True
    inapplicable: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_divvy(self) -> bool:
        """Return whether it is Divvy, whose agent answers what only a node knows."""
        return self.namespace is None

    def shortage(self, resource: str) -> str:
        """Return what the scheduler says of a pod for which a node has too few devices."""
        return (
            f"Insufficient {resource}" if self.dra_driver is None else "cannot allocate all claims"
        )

    def why_not(self, check: str) -> str | None:
        """Return why a check has no meaning for it, None if it has."""
        group = check.partition("-")[0] + "-"
        return self.inapplicable.get(check) or self.inapplicable.get(group)


DIVVY = Implementation(
    name="divvy",
    title="Divvy's plugin",
    daemon_set=AGENT,
    sockets=r"divvy.*[.]sock",
    cdi_file=f"{CDI_FOLDER}/{CDI_FILE}",
    refusal="at most 1 per container",
)
_WITHOUT_DIVVY = {
    "INST-": "Divvy is not installed there",
    "DISR-04": "the GPU's recovery is followed in the status of Divvy's agent",
}
_BY_PROFILE = "NVIDIA's device plugin changes no MIG layout"
# The names are those of NVIDIA's installation guide: release nvdp in a namespace of its own.
NVIDIA_DEVICE_PLUGIN = Implementation(
    name="nvidia-device-plugin",
    title="NVIDIA's device plugin",
    namespace="nvidia-device-plugin",
    daemon_set="nvdp-nvidia-device-plugin",
    sockets=r"nvidia-(gpu|mig-.+)[.]sock",
    cdi_file=f"{CDI_FOLDER}/k8s.device-plugin.nvidia.com-gpu.json",
    refusal="maximum request size for shared resources is 1",
    # GPU Feature Discovery names the strategy of its configuration on every node.
    free_labels=frozenset({"mig.strategy"}),
    names_partitioned_gpus=False,
    # One daemon serves all GPUs of a resource. A pod that looks into a node has the node's PIDs.
    mps_pipes="/proc/1/root/run/nvidia/mps/nvidia.com/gpu/pipe",
    inapplicable={
        **_WITHOUT_DIVVY,
        "CLM-": "NVIDIA's device plugin serves no claims",
        "NODE-01": "NVIDIA's device plugin keeps no status on its node",
        "NODE-15": "NVIDIA's device plugin keeps no status on its node",
        "OBS-": "NVIDIA's device plugin has no metrics: dcgm-exporter is a program of its own",
        "DISR-03": _BY_PROFILE,
        "DISR-05": _BY_PROFILE,
        "DISR-06": _BY_PROFILE,
    },
)
_FEATURES = (
    "NVIDIA's DRA driver writes no labels: GPU Feature Discovery comes with the device plugin"
)
_BY_LAYOUT = "NVIDIA's DRA driver changes no profile of a node"
_SIZES = "pods that name sizes in their limits get none from NVIDIA's DRA driver"
_SCHEDULED = "only the scheduler allocates claims: no pod that bypasses it gets a device"
# The names are those of NVIDIA's installation guide. Pods ask by extended resources, as with a
# device plugin: a DeviceClass with `extendedResourceName` makes a claim of them.
NVIDIA_DRA = Implementation(
    name="nvidia-dra",
    title="NVIDIA's DRA driver",
    namespace="dra-driver-nvidia-gpu",
    daemon_set="dra-driver-nvidia-gpu-kubelet-plugin",
    sockets="(?!)",
    dra_driver=NVIDIA,
    gpu_class=NVIDIA,
    share_class=NVIDIA,
    divides_time=False,
    inapplicable={
        **_WITHOUT_DIVVY,
        "CLM-01": "PLUG-02 counts the devices of its slices",
        "CLM-03": _SIZES,
        "CLM-04": _SIZES,
        "CLM-07": "WORK-01 makes its MIG devices, by the resources that pods name",
        "CLM-08": "NVIDIA's DRA driver knows no tenants",
        "NODE-01": "NVIDIA's DRA driver keeps no status on its node",
        "NODE-02": _FEATURES,
        "NODE-04": "NVIDIA's DRA driver writes a CDI specification for each claim, when it is used",
        "NODE-11": _FEATURES,
        "NODE-15": "NVIDIA's DRA driver keeps no status on its node",
        "PLUG-04": "a container that asks for two gets parts of two GPUs, or waits",
        "PLUG-06": _SCHEDULED,
        "PLUG-07": _SCHEDULED,
        "PLUG-11": "the kubelet lists no devices of DRA drivers: their slices have the NUMA node",
        "OBS-": "NVIDIA's DRA driver has no metrics of GPUs: dcgm-exporter is a program of its own",
        "DISR-03": _BY_LAYOUT,
        "DISR-05": _BY_LAYOUT,
        "DISR-06": _BY_LAYOUT,
    },
)
IMPLEMENTATIONS = {
    implementation.name: implementation
    for implementation in (DIVVY, NVIDIA_DEVICE_PLUGIN, NVIDIA_DRA)
}
