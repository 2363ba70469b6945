"""The NUMA node of each GPU as the kubelet has it: the Topology Manager aligns pods by it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.identities import physical
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script
from conformance.skips import not_applicable

# Runs in the agent's pod: what the kubelet was told, on the kubelet's own socket. The messages are
# those of k8s.io/kubelet/pkg/apis/podresources/v1, as far as they are needed.
HINTS = """
import json, grpc
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
file = FileDescriptorProto(name="podresources", package="v1", syntax="proto3")
for name, fields in {
    "AllocatableResourcesResponse": [("devices", 1, ".v1.ContainerDevices", True)],
    "ContainerDevices": [
        ("ids", 2, Field.TYPE_STRING, True), ("topology", 3, ".v1.Topology", False),
    ],
    "Topology": [("nodes", 1, ".v1.Node", True)],
    "Node": [("ID", 1, Field.TYPE_INT64, False)],
}.items():
    message = file.message_type.add(name=name)
    for field, number, kind, repeated in fields:
        label = Field.LABEL_REPEATED if repeated else Field.LABEL_OPTIONAL
        about = {"type_name": kind} if isinstance(kind, str) else {}
        kind = Field.TYPE_MESSAGE if about else kind
        message.field.add(name=field, number=number, type=kind, label=label, **about)
pool = DescriptorPool()
pool.Add(file)
Answer = GetMessageClass(pool.FindMessageTypeByName("v1.AllocatableResourcesResponse"))
with grpc.insecure_channel("unix:/var/lib/kubelet/pod-resources/kubelet.sock") as channel:
    ask = channel.unary_unary(
        "/v1.PodResourcesLister/GetAllocatableResources",
        request_serializer=bytes, response_deserializer=Answer.FromString,
    )
    try:
        answer = ask(b"", timeout=10)
    except grpc.RpcError as problem:
        if problem.code() != grpc.StatusCode.UNIMPLEMENTED:
            raise
        print("null")
    else:
        print(json.dumps({
            device: [node.ID for node in one.topology.nodes]
            for one in answer.devices for device in one.ids
        }))
"""
# Runs there too: where the bus says that the GPUs are. The kernel writes the domain of a PCI
# address with four digits, NVML with eight. A simulated driver has a sysfs of its own.
PLACES = (
    OPEN_NVML
    + """\
def numa(gpu):
    domain, _, rest = nvml.nvmlDeviceGetPciInfo(gpu).busId.lower().partition(":")
    for system in (f"{sys.argv[1]}/sys", "/sys"):
        try:
            with open(f"{system}/bus/pci/devices/{int(domain, 16):04x}:{rest}/numa_node") as file:
                return int(file.read())
        except OSError:
            continue
    return None
places = {}
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    places |= dict.fromkeys([nvml.nvmlDeviceGetUUID(gpu), *parts(gpu)], numa(gpu))
nodes = len([*pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")])
print(json.dumps({"devices": places, "nodes": nodes}))
"""
)


@dataclass(frozen=True)
class Numa:
    """NUMA nodes: ``hints`` by the IDs that the kubelet knows, ``places`` by UUID from the bus.

    A place is -1 if the firmware names none, and None if the bus says nothing of the GPU.
    ``nodes`` is how many NUMA nodes the machine has.
    """

    hints: Mapping[str, tuple[int, ...]] | None
    places: Mapping[str, int | None]
    nodes: int


def read_numa(target: ClusterUnderTest, node: str) -> Numa | None:
    """Read both sides on a node; None without an agent, in whose pod they are read."""
    hints = target.enter(node, "python3 -c %s", HINTS)
    bus = run_nvml_script(target, node, PLACES)
    if hints is None or bus is None:
        return None
    numa_hints = json.loads(hints)
    known = (
        None
        if numa_hints is None
        else {device: tuple(nodes) for device, nodes in numa_hints.items()}
    )
    return Numa(known, bus["devices"], bus["nodes"])


def hints_are_right(numa: Numa, devices: int) -> Verdict:
    """Judge the kubelet's hints of so many devices; not applicable if nothing can be told."""
    if numa.hints is None:
        not_applicable("this kubelet does not report the NUMA nodes of devices")
    places = numa.places
    if not any(place is not None for place in places.values()):
        not_applicable("the bus reports no GPU's NUMA node")
    own = {device: hint for device, hint in numa.hints.items() if physical(device) in places}
    wrong = [
        f"{device}: kubelet {_words(hint)}, bus {_words((place,) if place >= 0 else ())}"
        for device, hint in sorted(own.items())
        if (place := places[physical(device)]) is not None and hint not in _right(place, numa.nodes)
    ]
    right = len(own) - len(wrong)
    return (
        f"devices at the NUMA nodes of their GPUs: {devices}",
        "; ".join([f"devices at the NUMA nodes of their GPUs: {right}", *wrong]),
    )


def _right(place: int, nodes: int) -> tuple[tuple[int, ...], ...]:
    """Return the hints that are right for a GPU at this NUMA node (-1: unknown)."""
    if place >= 0:
        return ((place,),)
    # Firmware that names no NUMA node: the only one of a machine is no mistake.
    return ((), (0,)) if nodes <= 1 else ((),)


def _words(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes)) or "none"
