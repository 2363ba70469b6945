"""The cluster under test, as its API shows it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.cluster.cluster_under_test import ClusterUnderTest, CommandFailed
from conformance.observe.probes import is_simulated
from divvy.model import canonical_json, generation, parse_document
from tests.conformance.promised_nodes import CLUSTER, live, promised


def under_test(value: dict[str, Any], api: Any, nodes: Any = (), **more: Any) -> ClusterUnderTest:
    return ClusterUnderTest("s", parse_document(value), api, list(nodes), **more)


def test_asks_nodes_outside_the_sample_unless_no_pod_can_run_there() -> None:
    nodes = [replace(node, unready="away" if node.name == "c" else "") for node in promised(
        CLUSTER, live("a"), live("b"), live("c")
    )]  # fmt: skip
    api = OneConfigMap(canonical_json(CLUSTER))
    target = under_test(CLUSTER, api, nodes[:1], pool_nodes=nodes)
    assert [unsampled_node.name for unsampled_node in target.unsampled_nodes] == ["b"]
    # What continues an earlier report has to know which nodes are still there.
    assert target.describe()["otherNodes"] == ["b", "c"]


def node_of_api(allocatable: dict[str, str]) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True"}]
    return {
        "metadata": {"name": "n1"},
        "status": {"conditions": conditions, "allocatable": allocatable},
    }


class OneNode:
    """An API server with one node."""

    def __init__(self, allocatable: dict[str, str]) -> None:
        self.node = node_of_api(allocatable)

    def get(self, *_: Any) -> Any:
        return self.node


def test_reads_all_resources_of_the_file() -> None:
    value = {
        "profiles": {
            "thin": {"timeSlicing": {"replicas": 500, "resourceName": "example.org/thin"}}
        },
        "pools": {"p": {"hardware": {"model": "T4", "gpus": 2, "count": 1}, "profile": "thin"}},
        "devices": [{"resource": "rdma/hca", "paths": ["/dev/infiniband/*"], "count": 16}],
    }
    allocatable = {"example.org/thin": "1k", "rdma/hca": "16", "other.org/x": "3", "cpu": "8"}
    (node,) = promised(value, live("n1", allocatable))
    target = under_test(value, OneNode(allocatable), [node])
    assert target.advertised("n1") == dict(node.plan.per_node)
    assert target.advertised("n1") == {"example.org/thin": 1000, "rdma/hca": 16}


class OneConfigMap:
    """An API server with the configuration that agents follow."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get(self, *_: Any) -> Any:
        return {"data": {"cluster.json": self.text}}


def test_accepts_the_configuration_of_an_equivalent_chart() -> None:
    value = {**CLUSTER, "plugin": {"image": {"registry": "r:5000", "base": "r:5000/b"}}}
    chart = canonical_json({**CLUSTER, "namespace": "divvy-system"})
    target = under_test(value, OneConfigMap(chart))
    assert target.configuration == chart


def test_prefers_the_stack_files_configuration_to_a_different_live_one() -> None:
    other = canonical_json({**CLUSTER, "health": {"recoverAfter": "1h"}})
    target = under_test(CLUSTER, OneConfigMap(other))
    assert target.configuration == canonical_json({**CLUSTER, "namespace": "divvy-system"})


def test_asks_a_pod_first_whether_gpus_are_simulated() -> None:
    (node,) = promised(CLUSTER, live("n1"))
    target = under_test(CLUSTER, OneNode({}), [node])
    assert target.is_simulated("n1") is None
    target.drivers["n1"] = True
    assert target.is_simulated("n1") is True
    assert is_simulated("driver simulated\n") is True
    assert is_simulated("driver real\n") is False
    assert is_simulated("") is None


def test_names_one_configuration_for_a_job_and_a_workstation() -> None:
    api = OneConfigMap(canonical_json(CLUSTER))
    of_workstation = {**CLUSTER, "kubeconfig": "/home/me/.kube/config", "context": "prod"}
    for value in (CLUSTER, of_workstation):
        target = under_test(value, api)
        assert target.describe()["stackFile"] == {"generation": generation(api.text)}


class Entered:
    """A pod in which commands end so, one after the other: exit code, output, errors."""

    def __init__(self, *ends: tuple[int, str, str]) -> None:
        self.ends = list(ends)

    def run(self, *_: str) -> Any:
        rc, stdout, stderr = self.ends.pop(0)
        return SimpleNamespace(rc=rc, stdout=stdout, stderr=stderr)


@pytest.mark.parametrize(
    ("ends", "answer"),
    [
        ([(1, "", "Error from server: error dialing backend"), (0, "550.163.01\n", "")],
         "550.163.01"),
        ([(1, "", "error: unable to upgrade connection: container not found")] * 3, None),
        ([(1, "", "no such file\ncommand terminated with exit code 1"), (0, "late", "")], None),
    ],
)  # fmt: skip
def test_enters_a_pod_again_that_could_not_be_entered(
    ends: Any, answer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of commands on a fleet some meet a busy server, or an agent that is replaced."""
    host = Entered(*ends)
    monkeypatch.setattr("testinfra.get_host", lambda _: host)
    monkeypatch.setattr("conformance.cluster.cluster_under_test._PAUSES", (0.0, 0.0))
    target = under_test(CLUSTER, OneNode({}))
    monkeypatch.setattr(target, "agent", lambda *_: {"metadata": {"name": "divvy-agent-x"}})
    if answer is not None:
        assert target.enter("n1", "cat") == answer
        return
    with pytest.raises(CommandFailed, match="agent's pod on n1 failed"):
        target.enter("n1", "cat")
    assert len(host.ends) == (1 if "terminated" in ends[0][2] else 0)
