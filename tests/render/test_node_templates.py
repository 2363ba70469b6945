"""What autoscalers are told of nodes that do not exist, and what they cannot be told."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from divvy.model import parse_cluster
from divvy.plan import plan
from divvy.plan.node_templates import node_templates
from divvy.render.node_templates import (
    CannotTell,
    cluster_api_annotations,
    karpenter_overlays,
    node_objects,
)
from tests.plan.stacks import planned, pool

PROFILES = {
    "sliced": {"timeSlicing": {"replicas": 4}},
    "cut": {"mig": {"3g.20gb": 1, "2g.10gb": 1}},
    "sized": {"claims": {"shares": {}}},
}
TEMPLATES = node_templates(
    planned(
        PROFILES,
        replicas=pool("sliced", model="T4", gpus=2),
        partitions=pool("cut", gpus=1),
        sizes=pool("sized", gpus=1),
    )
)


def documents(text: str) -> list[Any]:
    return [document for document in yaml.safe_load_all(text) if document is not None]


def test_writes_a_node_and_its_slices_for_each_pool() -> None:
    nodes = {
        document["metadata"]["name"]: document for document in documents(node_objects(TEMPLATES))
    }
    assert nodes["replicas"]["status"]["allocatable"] == {"nvidia.com/gpu.shared": "8"}
    assert nodes["replicas"]["metadata"]["labels"] == {"pool": "replicas"}
    assert nodes["sizes"]["status"]["capacity"] == {}
    spec = nodes["sizes-divvy.gpu-by-size-0"]["spec"]
    assert spec["nodeName"] == "sizes"
    assert spec["pool"] == {"name": "sizes/divvy", "resourceSliceCount": 1, "generation": 1}
    assert [device["name"] for device in spec["devices"]] == ["gpu-0-share"]


def test_adds_the_selected_nodes_resources_by_an_overlay() -> None:
    text = karpenter_overlays(TEMPLATES)
    overlays = {document["metadata"]["name"]: document["spec"] for document in documents(text)}
    assert overlays["divvy-replicas"] == {
        "requirements": [{"key": "pool", "operator": "In", "values": ["replicas"]}],
        "capacity": {"nvidia.com/gpu.shared": "8"},
    }
    assert overlays["divvy-partitions"]["capacity"] == {
        "nvidia.com/mig-2g.10gb": "1",
        "nvidia.com/mig-3g.20gb": "1",
    }
    assert "divvy-sizes" not in overlays
    assert "# Pool sizes is left out: of devices of claims, Karpenter" in text


def test_says_that_an_overlay_of_other_devices_lacks_the_claims() -> None:
    cluster = {
        "profiles": PROFILES,
        "pools": {"sizes": {"select": {"pool": "sizes"}, **pool("sized")}},
        "devices": [{"resource": "rdma/hca", "paths": ["/dev/infiniband/rdma_cm"], "count": 16}],
    }
    text = karpenter_overlays(node_templates(plan(parse_cluster(cluster), "test")))
    assert text.startswith("# Without its claims: of devices of claims, Karpenter")
    (overlay,) = documents(text)
    assert overlay["spec"]["capacity"] == {"rdma/hca": "16"}


def test_annotates_the_one_resource_of_a_pool() -> None:
    text = cluster_api_annotations(TEMPLATES)
    prefix = "capacity.cluster-autoscaler.kubernetes.io"
    annotations = [document["metadata"]["annotations"] for document in documents(text)]
    assert annotations[0] == {
        f"{prefix}/gpu-type": "nvidia.com/gpu.shared",
        f"{prefix}/gpu-count": "8",
        f"{prefix}/labels": "pool=replicas",
    }
    assert "# The MachineDeployment (or MachineSet, MachinePool) of pool replicas:" in text
    left = (
        "# Pool partitions is left out: the annotations have one resource, and its nodes advertise"
    )
    assert f"{left} nvidia.com/mig-2g.10gb, nvidia.com/mig-3g.20gb.\n" in text


@pytest.mark.parametrize("tell", [karpenter_overlays, cluster_api_annotations])
def test_fails_with_each_reason_when_a_pool_is_unknown(tell: Any) -> None:
    sizes = node_templates(planned(PROFILES, a=pool("sized"), b=pool("sized")))
    with pytest.raises(CannotTell, match=r"^pool a: .* -o slices has them; pool b: "):
        tell(sizes)
    with pytest.raises(CannotTell, match="no pool of this stack names its hardware"):
        tell(node_templates(planned(PROFILES, a={"profile": "sized"})))


def test_writes_no_overlay_for_every_node() -> None:
    whole = node_templates(planned({"all": {}}, a=pool("all", select=None)))
    with pytest.raises(CannotTell, match="it has no select"):
        karpenter_overlays(whole)
