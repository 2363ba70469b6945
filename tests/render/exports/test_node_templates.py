"""What autoscalers are told of nodes that do not exist, and what they cannot be told."""

from __future__ import annotations

from typing import Any

import yaml

from divvy.plan.predict.node_templates import node_templates
from divvy.render.exports.node_templates import node_objects
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
    text = node_objects(TEMPLATES, ["bare"])
    assert text.startswith("# Pool bare is left out: nothing is known of its hardware.\n")
    nodes = {document["metadata"]["name"]: document for document in documents(text)}
    assert "bare" not in nodes
    assert nodes["replicas"]["status"]["allocatable"] == {"nvidia.com/gpu.shared": "8"}
    assert nodes["replicas"]["metadata"]["labels"] == {"pool": "replicas"}
    assert nodes["sizes"]["status"]["capacity"] == {}
    spec = nodes["sizes-divvy.gpu-by-size-0"]["spec"]
    assert spec["nodeName"] == "sizes"
    assert spec["pool"] == {"name": "sizes/divvy", "resourceSliceCount": 1, "generation": 1}
    assert [device["name"] for device in spec["devices"]] == ["gpu-0-share"]
