"""A cluster as clusters are: default pool, CPU node, claims, taint, cordon, unknown GPUs."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.faults import A100, H100, T4
from tests.conformance.scene import Scene
from tests.deployment import NODES_OF_CLAIMS

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]
# No model of Divvy's table.
UNKNOWN = "NVIDIA Z9000 96GB"
TAINT = "example.org/research"


def mixed(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return the lab's cluster with everything that makes real ones odd."""
    value = copy.deepcopy(cluster)
    quarters = {"replicas": 4, "resourceName": "example.org/quarter"}
    value["profiles"]["quarters"] = {"timeSlicing": quarters}
    pools = value["pools"]
    # What these nodes have is unknown.
    del pools["training"]["hardware"]
    pools["research"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
    # The default pool: it takes the GPU nodes that are left, and not the CPU node.
    del pools["notebooks"]["select"], pools["notebooks"]["runtime"]
    pools["notebooks"]["profile"] = "quarters"
    value["devices"] = [{"resource": "example.net/tun", "paths": ["/dev/net/tun"], "count": 3}]
    return value


@contextlib.contextmanager
def mixed_lab(scene: Scene) -> Iterator[None]:
    lab = scene.deployed.lab
    # Without pools of their own the default pool would take the nodes of claims.
    with scene.deployed.claims():
        lab.kubectl("cordon", T4)
        lab.kubectl("taint", "node", A100, f"{TAINT}=yes:NoSchedule")
        scene.deployed.cluster = mixed(scene.deployed.cluster)
        try:
            scene.deployed.up()
            yield
        finally:
            lab.kubectl("uncordon", T4)
            lab.kubectl("taint", "node", A100, f"{TAINT}-")


def product(scene: Scene, node: str) -> str | None:
    labels = scene.deployed.lab.get("node", node)["metadata"]["labels"]
    return (
        None
        if (product_label := labels.get("nvidia.com/gpu.product")) is None
        else str(product_label)
    )


def test_passes_a_sound_cluster_of_all_kinds_of_nodes(scene: Scene) -> None:
    with mixed_lab(scene), scene.other_gpus(H100, UNKNOWN):
        scene.deployed.until(lambda: product(scene, H100) == UNKNOWN.replace(" ", "-"), 60)
        # What is not known is not checked, and with --require that is not enough.
        report = scene.verify("--require", expect=3)
    failed = {
        (check["id"], check["case"]) for check in report["checks"] if check["status"] == "failed"
    }
    # Of a sound node, but no pod is put there: a recommendation.
    assert failed == {("NODE-10", T4)}, scene.output
    cases = {check["case"].partition(":")[0] for check in report["checks"]}
    pools = {"research", "training", "notebooks", "sizes", "experiments", "no pool"}
    assert cases == {"cluster", A100, H100, T4, *NODES_OF_CLAIMS, *pools}
    missed = [check for check in report["checks"] if check.get("missed") == "not made"]
    assert {check["case"] for check in missed} == {"training", H100}
    assert {check["id"] for check in missed if check["case"] == H100} >= {
        "NODE-01",
        "PLUG-02",
        "ISO-01",
    }
    assert all("does not say which GPUs" in check["reason"] for check in missed)
    assert {check["case"] for check in report["checks"] if check["status"] == "passed"} & {
        H100
    } == set()
    shares = [check for check in report["checks"] if check["case"] == f"{T4}:example.org/quarter"]
    assert "WORK-01" in {share["id"] for share in shares if share["status"] == "passed"}
