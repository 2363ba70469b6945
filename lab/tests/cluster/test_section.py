"""The lab's description is read strictly: every error at once, each with its one sentence."""

import json
from typing import Any

import pytest

from divvy.model import InvalidValue
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path
from lab.cluster.description import lab_of
from lab.cluster.paths import REPOSITORY
from lab.cluster.section import parse_lab, read_lab

GOOD: dict[str, Any] = {
    "nodes": [
        {"name": "gpu-1", "model": "T4", "count": 2, "labels": {"a.example/b": "c"}},
        {"name": "cpu-1"},
    ]
}


def _with(node: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    first, second = GOOD["nodes"]
    return {**GOOD, "nodes": [{**first, **(node or {})}, second], **changes}


def test_reads_the_lab_of_this_repository() -> None:
    lab = read_lab(read_path(REPOSITORY / "stacks/Pulumi.lab.yaml"))
    assert [(n.name, n.gpus and (n.gpus.model, n.gpus.count)) for n in lab.nodes] == [
        ("gpu-a100", ("A100-SXM4-40GB", 4)),
        ("gpu-h100", ("H100-80GB-HBM3", 2)),
        ("gpu-t4", ("T4", 2)),
        ("cpu-1", None),
        ("gpu-on-demand", ("A100-SXM4-40GB", 1)),
        ("gpu-by-size", ("L40S", 2)),
    ]
    assert (lab.node_status_update_frequency, lab.sync_frequency) == ("1s", "10s")
    assert [n.name for n in lab.nodes if not n.containerd.cdi] == ["gpu-t4"]
    assert all(n.driver == "simulated" for n in lab.nodes)


def test_fills_in_defaults() -> None:
    lab = parse_lab(GOOD)
    assert (lab.ports.api_server, lab.ports.etcd, lab.ports.registry) == (6443, 2379, 5000)
    assert str(lab.network) == "10.123.0.0/16"
    assert lab.nodes[0].containerd.config_version == 4
    assert lab.nodes[1].gpus is None


def test_reads_a_kept_description_back() -> None:
    frequencies = {"nodeStatusUpdateFrequency": "1s", "syncFrequency": "2s"}
    lab = parse_lab(
        _with(network="10.9.0.0/16", ports={"etcd": 1}, kubernetes="1.37", **frequencies)
    )
    assert lab_of(json.loads(json.dumps(lab.document()))) == lab


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "divvy:lab: is empty; a mapping is expected; write {} for an empty mapping"),
        ({}, "nodes: is missing; what it says: Its nodes"),
        ({"nodes": []}, "nodes: is empty; at least one entry is expected"),
        (_with(node_=[]), "node_: unknown key; did you mean nodes?"),
        (
            _with({"zzz": 1}),
            "nodes[0].zzz: unknown key; known: name, labels, model, count, driver, "
            "driverVersion, containerd",
        ),
        (
            _with({"name": "GPU 1"}),
            "nodes[0].name: is 'GPU 1'; a short lowercase name such as gpu-1 is expected",
        ),
        (_with({"name": "cpu-1"}), "nodes: cpu-1 is listed twice; give each node its own name"),
        (_with({"count": 0}), "nodes[0].count: is 0; 1 or more is expected"),
        (_with({"count": 17}), "nodes[0].count: is 17; 16 or less is expected"),
        (_with({"count": True}), "nodes[0].count: is true; a whole number is expected"),
        (
            {"nodes": [{"name": "a", "count": 2}]},
            "nodes[0]: has count but no GPUs; name their model, or remove count",
        ),
        (
            _with({"model": "T400"}),
            "nodes[0].model: unknown GPU model 'T400'; did you mean T4? known: ",
        ),
        (_with({"driver": "real"}), "nodes[0].driver: is 'real'; simulated or host is expected"),
        (
            _with({"driverVersion": 550.5}),
            "nodes[0].driverVersion: is 550.5; text is expected; put it in quotes",
        ),
        (
            _with({"containerd": {"configVersion": 1}}),
            "nodes[0].containerd.configVersion: is 1; 2, 3 or 4 is expected",
        ),
        (
            _with({"containerd": {"cdi": "no"}}),
            "nodes[0].containerd.cdi: is 'no'; true or false is expected",
        ),
        (
            _with({"labels": {"x": 1}}),
            "nodes[0].labels.x: is 1; text is expected; put it in quotes",
        ),
        (
            _with({"labels": {"node-role.kubernetes.io/gpu": ""}}),
            "nodes[0].labels.node-role.kubernetes.io/gpu: is a reserved label; kubelet may not "
            "set it on its node",
        ),
        (
            _with(network="10.0.0.0/8"),
            "network: is '10.0.0.0/8'; a private /16 such as 10.123.0.0/16 is expected",
        ),
        (_with(kubernetes="1.35"), "kubernetes: is '1.35'; 1.36 or 1.37 is expected"),
        (
            _with(kubernetes=1.37),
            "kubernetes: is 1.37; 1.36 or 1.37 is expected; put it in quotes",
        ),
        (_with(network="8.8.0.0/16"), "network: is '8.8.0.0/16'; a private /16 such as"),
        (_with(network="127.1.0.0/16"), "network: is '127.1.0.0/16'; a private /16 such as"),
        (_with(network="169.254.0.0/16"), "network: is '169.254.0.0/16'; a private /16 such as"),
        (
            _with({"labels": {"a b": "c"}}),
            "nodes[0].labels.a b: is not a valid label key: 'a b' has to be 1 to 63 letters, "
            "digits, '-', '_' or '.', with a letter or digit at both ends",
        ),
        (
            _with({"labels": {"a": "b,c=d"}}),
            "nodes[0].labels.a: is not a valid label value: 'b,c=d' has to be at most 63 letters, "
            "digits, '-', '_' or '.', with a letter or digit at both ends",
        ),
        (_with(ports={"etcd": 70000}), "ports.etcd: is 70000; 65535 or less is expected"),
        (_with(ports={"etcd": 5000}), "ports: has the same port twice; give each its own"),
        (
            _with(nodeStatusUpdateFrequency="10"),
            "nodeStatusUpdateFrequency: is '10'; a duration such as 10s is expected",
        ),
        (
            {"nodes": [{"name": f"n-{i}"} for i in range(65)]},
            "nodes: has 65 entries; 64 or fewer are expected",
        ),
    ],
)
def test_reports_each_error_in_one_sentence(value: object, problem: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        parse_lab(value)
    (only,) = map(str, refused.value.problems)
    assert only.startswith(problem)


def test_reports_all_errors_at_once_with_their_lines() -> None:
    text = (
        "config:\n  divvy:lab:\n    nodes:\n      - {name: a, model: T4,\n"
        "         count: 0, driver: x}\n    network: x\n"
    )
    with pytest.raises(StackError) as refused:
        read_lab(StackFile("x.yaml", text, "x"))
    assert str(refused.value).splitlines()[::2] == [
        "x.yaml has 3 errors:",
        "      1 or more is expected",
        "      simulated or host is expected",
        "      a private /16 such as 10.123.0.0/16 is expected",
    ]
    assert "  line 5: nodes[0].count: is 0" in str(refused.value)
