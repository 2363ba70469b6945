"""The section ``divvy:lab`` of a stack file as types: the lab as people write it."""

import re
from ipaddress import IPv4Network
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from divvy.model.gpu_models import UnknownGpuModel, gpu_model
from divvy.model.quantities import DURATION_PATTERN
from divvy.model.resource_names import label_key_error, label_value_error
from divvy.model.stack_part import StackPart, Text
from divvy.model.validation import Matches, read
from divvy.stack.file import StackFile
from divvy.stack.keys import LAB
from divvy.stack.sections import read_section
from lab.cluster.description import (
    DEFAULT_CONTAINERD,
    DEFAULT_DRIVER,
    DEFAULT_KUBERNETES,
    Containerd,
    ContainerdRelease,
    Gpus,
    Lab,
    Node,
    Ports,
    Release,
)

MAX_NODES = 64
MAX_GPUS = 16
# NodeRestriction and kubelet let a node give itself only these labels of the reserved domains.
_KUBELET_LABELS = (
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
_KUBELET_LABEL_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_RESERVED_DOMAIN = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io)$")
_ABOUT_GPUS = {"count": "count", "driver": "driver", "driver_version": "driverVersion"}
_NETWORK = "10.123.0.0/16"
# RFC 1918's: what else the standard library calls private, such as loopback, cannot be routed.
_PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")))


def _network(value: object) -> IPv4Network:
    try:
        network = IPv4Network(str(value))
    except ValueError:
        network = None
    if network is None or network.prefixlen != 16 or not any(map(network.subnet_of, _PRIVATE)):
        raise ValueError(f"is {value!r}; a private /16 such as {_NETWORK} is expected")
    return network


def _known_model(value: str) -> str:
    try:
        gpu_model(value)
    except UnknownGpuModel as unknown:
        raise ValueError(str(unknown)) from None
    return value


def _settable(label: str) -> str:
    error = label_key_error(label)
    if error:
        raise ValueError(f"is not a valid label key: {error}")
    allowed = label in _KUBELET_LABELS or label.startswith(_KUBELET_LABEL_PREFIXES)
    if _RESERVED_DOMAIN.search(label.rpartition("/")[0]) and not allowed:
        raise ValueError("is a reserved label; kubelet may not set it on its node")
    return label


def _label_value(value: str) -> str:
    error = label_value_error(value)
    if error:
        raise ValueError(f"is not a valid label value: {error}")
    return value


_Label = Annotated[str, AfterValidator(_settable)]
_LabelValue = Annotated[str, Field(strict=True), AfterValidator(_label_value)]
_Port = Annotated[int, Field(strict=True, ge=1, le=65535)]


class LabContainerd(StackPart):
    """A node's container runtime."""

    config_version: Literal[2, 3, 4] = 4
    """Version of containerd's configuration file."""
    cdi: Annotated[bool, Field(strict=True)] = True
    """Whether CDI is on."""
    version: ContainerdRelease = DEFAULT_CONTAINERD
    """The release of containerd."""


class LabNode(StackPart):
    """A node of the lab."""

    name: Annotated[
        str,
        Field(strict=True),
        Matches(r"^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$", "a short lowercase name such as gpu-1"),
    ]
    """The node's name."""
    labels: dict[_Label, _LabelValue] = {}
    """Labels that its kubelet registers."""
    model: Annotated[Text, AfterValidator(_known_model)] | None = None
    """GPU model; absent: no GPUs."""
    count: Annotated[int, Field(strict=True, ge=1, le=MAX_GPUS)] = 1
    """GPUs of the node."""
    driver: Literal["simulated", "host"] = "simulated"
    """simulated: Divvy's simulated driver; host: this machine's driver and GPUs."""
    driver_version: Annotated[
        str,
        Field(strict=True),
        Matches(r"^\d+\.\d+(\.\d+)?$", "a driver version in quotes such as 550.163.01"),
    ] = DEFAULT_DRIVER
    """The version that the simulated driver reports."""
    containerd: LabContainerd = LabContainerd()
    """The container runtime."""

    @model_validator(mode="after")
    def _about_gpus(self) -> "LabNode":
        if self.model is None:
            for name, key in _ABOUT_GPUS.items():
                if name in self.model_fields_set:
                    raise ValueError(f"has {key} but no GPUs; name their model, or remove {key}")
        return self


class LabPorts(StackPart):
    """The TCP ports that the lab uses on this machine."""

    api_server: _Port = 6443
    """Port of the API server."""
    etcd: _Port = 2379
    """Port of etcd."""
    registry: _Port = 5000
    """Port of the registry."""

    @model_validator(mode="after")
    def _different(self) -> "LabPorts":
        if len({self.api_server, self.etcd, self.registry}) < 3:
            raise ValueError("has the same port twice; give each its own")
        return self


class LabSection(StackPart):
    """The cluster that `divvy lab up` starts on this machine."""

    nodes: tuple[LabNode, ...] = Field(min_length=1, max_length=MAX_NODES)
    """Its nodes."""
    kubernetes: Release = DEFAULT_KUBERNETES
    """The release of Kubernetes."""
    network: Annotated[
        IPv4Network,
        BeforeValidator(_network),
        WithJsonSchema({"type": "string", "default": _NETWORK}),
    ] = IPv4Network(_NETWORK)
    """A private /16 that nothing else on this machine uses."""
    ports: LabPorts = LabPorts()
    """Ports on this machine."""
    node_status_update_frequency: Annotated[
        str, Field(strict=True), Matches(DURATION_PATTERN, "a duration such as 10s")
    ] = "10s"
    """How often a kubelet looks at its node's status, which it reports when it has changed."""
    sync_frequency: Annotated[
        str, Field(strict=True), Matches(DURATION_PATTERN, "a duration such as 10s")
    ] = "1m"
    """How often a kubelet tries again to start a pod whose claim it could not read."""

    @field_validator("nodes")
    @classmethod
    def _names(cls, nodes: tuple[LabNode, ...]) -> tuple[LabNode, ...]:
        names = [node.name for node in nodes]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is listed twice; give each node its own name")
        return nodes


def read_lab(file: StackFile) -> Lab:
    """Return the lab that a stack file describes; raises StackError with every error."""
    return read_section(file, LAB, parse_lab)


def parse_lab(value: object) -> Lab:
    """Return the lab of a ``divvy:lab`` value; raises InvalidValue with every error."""
    section = read(LabSection, value, LAB)
    ports = section.ports
    return Lab(
        nodes=tuple(_node(index, node) for index, node in enumerate(section.nodes)),
        network=section.network,
        ports=Ports(ports.api_server, ports.etcd, ports.registry),
        node_status_update_frequency=section.node_status_update_frequency,
        sync_frequency=section.sync_frequency,
        kubernetes=section.kubernetes,
    )


def _node(index: int, node: LabNode) -> Node:
    return Node(
        name=node.name,
        index=index,
        labels=node.labels,
        gpus=None if node.model is None else Gpus(node.model, node.count),
        driver=node.driver,
        driver_version=node.driver_version,
        containerd=Containerd(
            node.containerd.config_version, node.containerd.cdi, node.containerd.version
        ),
    )
