"""The lab as a value: nodes, their GPUs, the network, the ports."""

import ipaddress
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

DEFAULT_DRIVER = "550.163.01"

Release = Literal["1.36", "1.37"]
DEFAULT_KUBERNETES: Release = "1.37"
ContainerdRelease = Literal["2.3", "2.4"]
DEFAULT_CONTAINERD: ContainerdRelease = "2.3"


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node: one model, so many."""

    model: str
    count: int


@dataclass(frozen=True)
class Containerd:
    """A node's container runtime: its version, and how it is configured."""

    config_version: int = 4
    cdi: bool = True
    version: ContainerdRelease = DEFAULT_CONTAINERD


@dataclass(frozen=True)
class Node:
    """One node of the lab."""

    name: str
    index: int
    labels: Mapping[str, str]
    gpus: Gpus | None = None
    driver: str = "simulated"
    driver_version: str = DEFAULT_DRIVER
    containerd: Containerd = field(default_factory=Containerd)


@dataclass(frozen=True)
class Ports:
    """The TCP ports of the lab on this machine."""

    api_server: int = 6443
    etcd: int = 2379
    registry: int = 5000


@dataclass(frozen=True)
class Lab:
    """A whole lab."""

    nodes: tuple[Node, ...]
    network: ipaddress.IPv4Network = ipaddress.IPv4Network("10.123.0.0/16")
    ports: Ports = field(default_factory=Ports)
    node_status_update_frequency: str = "10s"
    sync_frequency: str = "1m"
    kubernetes: Release = DEFAULT_KUBERNETES

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        raise KeyError(f"the lab has no node {name}; its nodes are {', '.join(names)}")

    def without_versions(self) -> "Lab":
        """Return the lab with the default version of all that an upgrade replaces."""
        nodes = [
            replace(
                node,
                driver_version=DEFAULT_DRIVER,
                containerd=replace(node.containerd, version=DEFAULT_CONTAINERD),
            )
            for node in self.nodes
        ]
        return replace(self, nodes=tuple(nodes), kubernetes=DEFAULT_KUBERNETES)

    def document(self) -> dict[str, Any]:
        """Return the description as plain values, to be kept and compared."""
        return {**asdict(self), "network": str(self.network)}


def node_of(document: Mapping[str, Any]) -> Node:
    """Return the node that a kept document describes."""
    gpus = document["gpus"]
    return Node(
        **{
            **document,
            "gpus": Gpus(**gpus) if gpus else None,
            "containerd": Containerd(**document["containerd"]),
        }
    )


def lab_of(document: Mapping[str, Any]) -> Lab:
    """Return the lab that a kept document describes."""
    return Lab(
        nodes=tuple(node_of(node) for node in document["nodes"]),
        network=ipaddress.IPv4Network(document["network"]),
        ports=Ports(**document["ports"]),
        node_status_update_frequency=document["node_status_update_frequency"],
        sync_frequency=document["sync_frequency"],
        kubernetes=document["kubernetes"],
    )
