"""What a node's programs are told."""

import json
import tomllib

import pytest

from lab.cluster import kubelet_config
from lab.cluster.containerd_config import config_toml, hosts_toml
from lab.cluster.description import Containerd, Lab
from lab.cluster.section import parse_lab

RUNTIME = "io.containerd.cri.v1.runtime"


def _config(version: int, cdi: bool = True, may_lower: bool = True) -> dict[str, object]:
    text = config_toml(Containerd(version, cdi), "reg/pause@sha256:1", "/cni", may_lower)
    return tomllib.loads(text)


@pytest.fixture
def described() -> Lab:
    labels = {"node.kubernetes.io/instance-type": "x", "a": "b"}
    nodes = [{"name": "n-0"}, {"name": "n-1", "labels": labels}]
    return parse_lab({"nodes": nodes, "nodeStatusUpdateFrequency": "3s", "syncFrequency": "7s"})


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("cdi", [True, False])
def test_sets_cdi_explicitly_in_every_containerd_version(version: int, cdi: bool) -> None:
    config = _config(version, cdi, may_lower=False)
    assert config["version"] == version
    plugins = config["plugins"]
    assert isinstance(plugins, dict)
    runtime = plugins["io.containerd.grpc.v1.cri" if version == 2 else RUNTIME]
    assert runtime["enable_cdi"] is cdi
    assert runtime["restrict_oom_score_adj"] is True
    assert ("imports" in config) is (version == 4)


def test_keeps_containerds_default_on_a_machine_with_all_capabilities() -> None:
    plugins = _config(4)["plugins"]
    assert isinstance(plugins, dict)
    assert plugins[RUNTIME]["restrict_oom_score_adj"] is False


def test_allows_the_registry_without_tls() -> None:
    hosts = tomllib.loads(hosts_toml("10.0.0.1:5000"))
    assert list(hosts["host"]) == ["http://10.0.0.1:5000"]


def test_configures_a_kubelet_without_anonymous_access_and_its_frequency(described: Lab) -> None:
    config = json.loads(kubelet_config.kubelet(described, described.nodes[1]))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["nodeStatusUpdateFrequency"] == "3s"
    assert config["nodeStatusReportFrequency"] == "5m"
    assert config["syncFrequency"] == "7s"
    assert config["cgroupRoot"] == "/divvy-lab/n-1"
    arguments = kubelet_config.kubelet_arguments(described, described.nodes[1])
    assert "--node-labels=a=b,node.kubernetes.io/instance-type=x" in arguments
    assert "--node-ip=10.123.0.11" in arguments
    without = kubelet_config.kubelet_arguments(described, described.nodes[0])
    assert not [argument for argument in without if argument.startswith("--node-labels")]


def test_gives_pods_of_a_node_addresses_of_its_subnet(described: Lab) -> None:
    network = json.loads(kubelet_config.pod_network(described, described.nodes[1]))
    assert network["plugins"][0]["ipam"]["subnet"] == "10.123.65.0/24"
