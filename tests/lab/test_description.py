"""A lab's description is read strictly: every error at once, each with its one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from divvy.lab.description import InvalidDescription, Lab, lab_of, parse_lab
from divvy.lab.stack import read_lab, stack_file

GOOD: dict[str, Any] = {
    "nodes": [
        {"name": "gpu-1", "model": "T4", "count": 2, "labels": {"a.example/b": "c"}},
        {"name": "cpu-1"},
    ]
}


def _with(node: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    first, second = GOOD["nodes"]
    return {**GOOD, "nodes": [{**first, **(node or {})}, second], **changes}


def test_the_lab_of_this_repository() -> None:
    lab = read_lab(stack_file("lab"))
    assert [(n.name, n.gpus and (n.gpus.model, n.gpus.count)) for n in lab.nodes] == [
        ("gpu-a100", ("A100-SXM4-40GB", 4)),
        ("gpu-h100", ("H100-80GB-HBM3", 2)),
        ("gpu-t4", ("T4", 2)),
        ("cpu-1", None),
    ]
    assert lab.node_status_update_frequency == "10s"
    assert [n.name for n in lab.nodes if not n.containerd.cdi] == ["gpu-t4"]
    assert all(n.driver == "simulated" for n in lab.nodes)


def test_defaults() -> None:
    lab = parse_lab(GOOD)
    assert (lab.ports.api_server, lab.ports.etcd, lab.ports.registry) == (6443, 2379, 5000)
    assert str(lab.network) == "10.123.0.0/16"
    assert lab.nodes[0].containerd.config_version == 4
    assert lab.nodes[1].gpus is None


def test_a_kept_description_is_the_same_lab() -> None:
    lab = parse_lab(_with(network="10.9.0.0/16", ports={"etcd": 1}, nodeStatusUpdateFrequency="1s"))
    kept: Lab = lab_of(json.loads(json.dumps(lab.document())))
    assert kept == lab


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "divvy:lab: is missing, a mapping of nodes, network, ports, "),
        ({}, "divvy:lab.nodes: is missing, a list of at least one node is expected"),
        ({"nodes": []}, "divvy:lab.nodes: is a list, a list of at least one node is expected"),
        (_with(node_={}), "divvy:lab.node_: unknown key; did you mean nodes?"),
        (
            _with({"zzz": 1}),
            "divvy:lab.nodes[0].zzz: unknown key; known: name, labels, model, count, driver, "
            "driverVersion, containerd",
        ),
        (_with({"name": "GPU 1"}), "divvy:lab.nodes[0].name: is 'GPU 1', a short lower-case name"),
        (
            _with({"name": "cpu-1"}),
            "divvy:lab.nodes[1].name: cpu-1 is already nodes[0]; names must be unique",
        ),
        (_with({"count": 0}), "divvy:lab.nodes[0].count: is 0, a whole number from 1 to 16"),
        (_with({"count": True}), "divvy:lab.nodes[0].count: is True, a whole number from 1 to 16"),
        (
            {"nodes": [{"name": "a", "count": 2}]},
            "divvy:lab.nodes[0].count: is about GPUs, but the node has no model",
        ),
        (
            _with({"driver": "real"}),
            "divvy:lab.nodes[0].driver: is 'real', one of simulated, host is expected",
        ),
        (
            _with({"driverVersion": 550.5}),
            "divvy:lab.nodes[0].driverVersion: is 550.5, a driver version in quotes",
        ),
        (
            _with({"containerd": {"configVersion": 1}}),
            "divvy:lab.nodes[0].containerd.configVersion: is 1, one of 2, 3, 4 is expected",
        ),
        (
            _with({"containerd": {"cdi": "no"}}),
            "divvy:lab.nodes[0].containerd.cdi: is 'no', true or false is expected",
        ),
        (
            _with({"labels": {"x": 1}}),
            "divvy:lab.nodes[0].labels.x: is a number, text is expected; quote it",
        ),
        (
            _with({"labels": {"node-role.kubernetes.io/gpu": ""}}),
            "divvy:lab.nodes[0].labels.node-role.kubernetes.io/gpu: kubelet may not give its "
            "node this reserved label",
        ),
        (
            _with(network="10.0.0.0/8"),
            "divvy:lab.network: is '10.0.0.0/8', a private /16 such as 10.123.0.0/16 is expected",
        ),
        (_with(network="8.8.0.0/16"), "divvy:lab.network: is '8.8.0.0/16', a private /16 such as"),
        (_with(ports={"etcd": 70000}), "divvy:lab.ports.etcd: is 70000, a whole number from 1 to"),
        (_with(ports={"etcd": 5000}), "divvy:lab.ports: two of these ports are the same; each"),
        (
            _with(nodeStatusUpdateFrequency=10),
            "divvy:lab.nodeStatusUpdateFrequency: is 10, a duration such as 10s is expected",
        ),
        (
            {"nodes": [{"name": f"n-{i}"} for i in range(65)]},
            "divvy:lab.nodes: has 65 nodes, at most 64 fit into one lab",
        ),
    ],
)
def test_each_error_has_its_one_sentence(value: object, problem: str) -> None:
    with pytest.raises(InvalidDescription) as refused:
        parse_lab(value)
    assert len([p for p in refused.value.problems if p.startswith(problem)]) == 1


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(InvalidDescription) as refused:
        parse_lab(_with({"count": 0, "driver": 1}, network="x"))
    assert len(refused.value.problems) == 3


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        ("config: {}", "has no config.divvy:lab, which describes the lab"),
        ("[]", "has no config.divvy:lab, which describes the lab"),
        (
            "config: {'divvy:lab': {nodes: [{name: a, model: T400}]}}",
            "divvy:lab.nodes[0].model: unknown GPU model 'T400'; did you mean T4?",
        ),
    ],
)
def test_errors_of_the_file(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "Pulumi.x.yaml"
    file.write_text(text)
    with pytest.raises(InvalidDescription, match=r".") as refused:
        read_lab(file)
    assert problem in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidDescription, match=r"no\.yaml: No such file or directory"):
        read_lab(tmp_path / "no.yaml")
