"""The lab as its stack file describes it: nodes, their GPUs, the network, the ports."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from typing import Any

DRIVERS = ("simulated", "host")
CONTAINERD_CONFIG_VERSIONS = (2, 3, 4)
# NodeRestriction and kubelet let a node give itself only these labels of the reserved domains.
KUBELET_LABELS = (
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
KUBELET_LABEL_PREFIXES = ("kubelet.kubernetes.io/", "node.kubernetes.io/")
_RESERVED_DOMAIN = re.compile(r"(^|\.)(kubernetes\.io|k8s\.io)$")
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h))+")
_MOST_NODES = 64


class InvalidDescription(Exception):
    """The lab's description has errors; all of them are told, one sentence each."""

    def __init__(self, problems: tuple[str, ...]):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Gpus:
    """The GPUs of a node: one model, so many."""

    model: str
    count: int


@dataclass(frozen=True)
class Containerd:
    """What is unusual about a node's container runtime."""

    config_version: int = 4
    cdi: bool = True


@dataclass(frozen=True)
class Node:
    """One node of the lab."""

    name: str
    index: int
    labels: Mapping[str, str]
    gpus: Gpus | None = None
    driver: str = "simulated"
    driver_version: str = ""
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

    def node(self, name: str) -> Node:
        """Return the node of that name."""
        for node in self.nodes:
            if node.name == name:
                return node
        names = [node.name for node in self.nodes]
        raise KeyError(f"the lab has no node {name}; its nodes are {', '.join(names)}")

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
    )


def parse_lab(
    value: object,
    where: str = "divvy:lab",
    model_problem: Callable[[str], str | None] = lambda _name: None,
) -> Lab:
    """Read a description; raise InvalidDescription with every error at once.

    `model_problem` says what is wrong with the name of a GPU model.
    """
    reader = _Reader(model_problem)
    lab = reader.lab(value, where)
    if reader.problems:
        raise InvalidDescription(tuple(reader.problems))
    return lab


class _Reader:
    """Walks a description and collects what is wrong with it."""

    def __init__(self, model_problem: Callable[[str], str | None]) -> None:
        self.problems: list[str] = []
        self._model_problem = model_problem

    def problem(self, where: str, sentence: str) -> None:
        self.problems.append(f"{where}: {sentence}")

    def mapping(self, value: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            self.problem(where, f"is {_kind(value)}, a mapping of {', '.join(known)} is expected")
            return {}
        for key in value:
            if key not in known:
                nearest = get_close_matches(str(key), known, n=1)
                hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(known)}"
                self.problem(f"{where}.{key}", f"unknown key; {hint}")
        return value

    def integer(self, value: object, where: str, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            self.problem(where, f"is {value!r}, a whole number from {low} to {high} is expected")
            return low
        return value

    def text(self, value: object, where: str, shape: re.Pattern[str], expected: str) -> str:
        if not isinstance(value, str) or not shape.fullmatch(value):
            self.problem(where, f"is {value!r}, {expected} is expected")
            return ""
        return value

    def choice(self, value: object, where: str, known: tuple[Any, ...]) -> Any:
        if value not in known or isinstance(value, bool):
            self.problem(where, f"is {value!r}, one of {', '.join(map(str, known))} is expected")
            return known[-1]
        return value

    def lab(self, value: object, where: str) -> Lab:
        known = ("nodes", "network", "ports", "nodeStatusUpdateFrequency")
        fields = self.mapping(value, where, known)
        frequency = self.text(
            fields.get("nodeStatusUpdateFrequency", "10s"),
            f"{where}.nodeStatusUpdateFrequency",
            _DURATION,
            "a duration such as 10s",
        )
        return Lab(
            nodes=self.nodes(fields.get("nodes"), f"{where}.nodes"),
            network=self.network(fields.get("network", "10.123.0.0/16"), f"{where}.network"),
            ports=self.ports(fields.get("ports", {}), f"{where}.ports"),
            node_status_update_frequency=frequency,
        )

    def network(self, value: object, where: str) -> ipaddress.IPv4Network:
        try:
            network = ipaddress.IPv4Network(str(value))
        except ValueError:
            network = None
        if network is None or network.prefixlen != 16 or not network.is_private:
            self.problem(where, f"is {value!r}, a private /16 such as 10.123.0.0/16 is expected")
            return ipaddress.IPv4Network("10.123.0.0/16")
        return network

    def ports(self, value: object, where: str) -> Ports:
        fields = self.mapping(value, where, ("apiServer", "etcd", "registry"))
        chosen = {
            key: self.integer(fields.get(key, default), f"{where}.{key}", 1, 65535)
            for key, default in (("apiServer", 6443), ("etcd", 2379), ("registry", 5000))
        }
        if len(set(chosen.values())) < len(chosen):
            self.problem(where, "two of these ports are the same; each needs its own")
        return Ports(chosen["apiServer"], chosen["etcd"], chosen["registry"])

    def nodes(self, value: object, where: str) -> tuple[Node, ...]:
        if not isinstance(value, list) or not value:
            self.problem(where, f"is {_kind(value)}, a list of at least one node is expected")
            return ()
        if len(value) > _MOST_NODES:
            self.problem(where, f"has {len(value)} nodes, at most {_MOST_NODES} fit into one lab")
        nodes = tuple(self.node(each, f"{where}[{i}]", i) for i, each in enumerate(value))
        first: dict[str, int] = {}
        for i, node in enumerate(nodes):
            if node.name and first.setdefault(node.name, i) != i:
                self.problem(
                    f"{where}[{i}].name",
                    f"{node.name} is already nodes[{first[node.name]}]; names must be unique",
                )
        return nodes

    def node(self, value: object, where: str, index: int) -> Node:
        known = ("name", "labels", "model", "count", "driver", "driverVersion", "containerd")
        fields = self.mapping(value, where, known)
        name = self.text(
            fields.get("name"), f"{where}.name", _NODE_NAME, "a short lower-case name like gpu-1"
        )
        gpus = None
        if "model" in fields:
            model = self.model(fields["model"], f"{where}.model")
            gpus = Gpus(model, self.integer(fields.get("count", 1), f"{where}.count", 1, 16))
        else:
            for key in ("count", "driver", "driverVersion"):
                if key in fields:
                    self.problem(f"{where}.{key}", "is about GPUs, but the node has no model")
        return Node(
            name=name,
            index=index,
            labels=self.labels(fields.get("labels", {}), f"{where}.labels"),
            gpus=gpus,
            driver=self.choice(fields.get("driver", "simulated"), f"{where}.driver", DRIVERS),
            driver_version=self.text(
                fields.get("driverVersion", "550.163.01"),
                f"{where}.driverVersion",
                re.compile(r"\d+\.\d+(\.\d+)?"),
                "a driver version in quotes such as 550.163.01",
            ),
            containerd=self.containerd(fields.get("containerd", {}), f"{where}.containerd"),
        )

    def model(self, value: object, where: str) -> str:
        model = self.text(value, where, re.compile(r"\S+"), "a GPU model")
        problem = self._model_problem(model) if model else None
        if problem:
            self.problem(where, problem)
        return model

    def containerd(self, value: object, where: str) -> Containerd:
        fields = self.mapping(value, where, ("configVersion", "cdi"))
        cdi = fields.get("cdi", True)
        if not isinstance(cdi, bool):
            self.problem(f"{where}.cdi", f"is {cdi!r}, true or false is expected")
        version = self.choice(
            fields.get("configVersion", 4), f"{where}.configVersion", CONTAINERD_CONFIG_VERSIONS
        )
        return Containerd(config_version=version, cdi=bool(cdi))

    def labels(self, value: object, where: str) -> Mapping[str, str]:
        if not isinstance(value, Mapping):
            self.problem(where, f"is {_kind(value)}, a mapping from label to value is expected")
            return {}
        for key, text in value.items():
            if not isinstance(text, str):
                self.problem(f"{where}.{key}", f"is {_kind(text)}, text is expected; quote it")
            domain = str(key).rpartition("/")[0]
            allowed = key in KUBELET_LABELS or str(key).startswith(KUBELET_LABEL_PREFIXES)
            if _RESERVED_DOMAIN.search(domain) and not allowed:
                self.problem(f"{where}.{key}", "kubelet may not give its node this reserved label")
        return dict(value)


def _kind(value: object) -> str:
    if value is None:
        return "missing"
    return {str: "text", list: "a list", bool: "a truth value", int: "a number"}.get(
        type(value), f"a {type(value).__name__}"
    )
