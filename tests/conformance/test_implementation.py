"""What can be asked of each implementation, and what its absence of an agent changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance import conftest
from conformance.catalogue import CATALOGUE
from conformance.cluster.cluster_under_test import CLUSTER, ClusterUnderTest
from conformance.implementation import (
    DIVVY,
    IMPLEMENTATIONS,
    NVIDIA_DEVICE_PLUGIN,
    NVIDIA_DRA,
    Implementation,
)
from conformance.skips import CheckSkipped, NotApplicable
from divvy.kube.kind import DEVICE_CLASS, RESOURCE_SLICE, Kind
from divvy.model import parse_document
from tests.conformance.promised_nodes import CLUSTER as STACK
from tests.conformance.promised_nodes import live, promised


@pytest.mark.parametrize(
    "implementation", IMPLEMENTATIONS.values(), ids=lambda implementation: implementation.name
)
def test_names_only_existing_checks_as_inapplicable(implementation: Any) -> None:
    for key in implementation.inapplicable:
        assert any(key in (identity, identity.partition("-")[0] + "-") for identity in CATALOGUE)


def test_asks_everything_of_divvy() -> None:
    assert not any(DIVVY.why_not(identity) for identity in CATALOGUE)


def test_asks_nothing_of_another_plugin_that_needs_an_agent() -> None:
    why_not = NVIDIA_DEVICE_PLUGIN.why_not
    assert why_not("INST-03") == "Divvy is not installed there"
    assert why_not("NODE-01")
    assert why_not("NODE-02") is None
    assert why_not("ISO-09") is None


def test_asks_a_dra_driver_for_isolation_and_nothing_of_labels() -> None:
    assert NVIDIA_DRA.why_not("NODE-02")
    assert NVIDIA_DRA.why_not("PLUG-07")
    for identity in ("PLUG-02", "PLUG-03", "WORK-01", "ISO-02", "ISO-09", "ISO-13"):
        assert NVIDIA_DRA.why_not(identity) is None


def test_asks_a_dra_driver_for_no_sizes_of_pods_and_no_tenants() -> None:
    asked = [identity for identity in CATALOGUE if identity.startswith("CLM-")]
    assert [identity for identity in asked if NVIDIA_DRA.why_not(identity) is None] == [
        "CLM-02", "CLM-05", "CLM-06", "CLM-09", "CLM-10", "CLM-11", "CLM-12", "CLM-13", "CLM-14",
    ]  # fmt: skip
    assert all(NVIDIA_DEVICE_PLUGIN.why_not(identity) for identity in asked)


def test_reads_what_a_dra_driver_offers_in_its_slices() -> None:
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n1", "devices": [device]}
    slices = [{"spec": {**spec, "pool": {"name": "n1", "generation": 1}}}]
    classes = [{"spec": {"extendedResourceName": "nvidia.com/gpu"}}]

    objects: dict[Kind, list[Any]] = {RESOURCE_SLICE: slices, DEVICE_CLASS: classes}
    target = under_test(SimpleNamespace(find_known=objects.__getitem__), {}, NVIDIA_DRA)
    assert target.advertised("n1") == {"nvidia.com/gpu": 1}


def under_test(
    api: Any, reported: dict[str, Any], implementation: Implementation
) -> ClusterUnderTest:
    return ClusterUnderTest(
        *("s", parse_document(STACK), api, promised(STACK, live("n1"))),
        reported=reported,
        no_image="no workload image",
        implementation=implementation,
    )


def foreign(reported: dict[str, Any], pods: list[Any]) -> ClusterUnderTest:
    def find(*_: Any, namespace: str, fields: Any) -> list[Any]:
        assert (namespace, fields) == ("nvidia-device-plugin", {"spec.nodeName": "n1"})
        return pods

    return under_test(SimpleNamespace(find=find), reported, NVIDIA_DEVICE_PLUGIN)


def pod(owner: str) -> dict[str, Any]:
    return {"metadata": {"name": owner, "ownerReferences": [{"kind": "DaemonSet", "name": owner}]}}


def test_restarts_the_plugins_pod_and_not_feature_discoverys() -> None:
    name = NVIDIA_DEVICE_PLUGIN.daemon_set
    pods = [pod(f"{name}-gpu-feature-discovery"), pod(name)]
    agent = foreign({}, pods).agent("n1")
    assert agent is not None
    assert agent["metadata"]["name"] == name
    assert foreign({}, pods[:1]).agent("n1") is None


def test_asks_nothing_in_the_plugins_own_pod_without_an_image() -> None:
    """A pod of another implementation is not entered: it need not have what the agent's has."""
    target = foreign({}, [pod(NVIDIA_DEVICE_PLUGIN.daemon_set)])
    with pytest.raises(CheckSkipped, match="no workload image"):
        target.enter("n1", "true")


class Item:
    """A case of a check."""

    def __init__(self, target: ClusterUnderTest, check: str) -> None:
        stash: Any = pytest.Stash()
        stash[CLUSTER] = target
        stash[conftest._SIMULATED] = False
        given = {"--exclusive": True}
        self.config = SimpleNamespace(stash=stash, getoption=given.get)
        self.callspec = SimpleNamespace(params={"node": target.nodes[0]})
        self._check = check

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=[CATALOGUE[self._check]]) if name == "check" else None


def test_reports_a_meaningless_check_as_not_applicable() -> None:
    item: Any = Item(foreign({}, []), "OBS-02")
    assert conftest._why_not(item) == (
        "not applicable", "NVIDIA's device plugin has no metrics: dcgm-exporter is a program of "
        "its own",
    )  # fmt: skip


def test_skips_hardware_checks_once_a_pod_found_the_simulated_driver() -> None:
    """Without an agent this is not known when the checks are collected."""
    target = foreign({}, [])
    item: Any = Item(target, "HW-01")
    assert conftest._why_not(item) is None
    conftest.pytest_runtest_setup(item)
    target.drivers["n1"] = True
    with pytest.raises(NotApplicable, match="the GPUs are simulated"):
        conftest.pytest_runtest_setup(item)
