"""What a removed Divvy left on a Node, and what of it is still true."""

from __future__ import annotations

from divvy.init.gpu_node import gpu_node
from divvy.init.leftovers import without_leftovers
from tests.init.nodes import gfd, node, status

SINGLE = gfd("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 28, 4864, strategy="single")


def test_leaves_a_node_that_no_divvy_had() -> None:
    raw = node("gpu-1", {}, SINGLE)
    assert without_leftovers(raw, labels_are_current=False) is raw


def test_keeps_the_hardware_and_forgets_how_it_was_shared() -> None:
    raw = node("gpu-1", {}, SINGLE, annotations={**status(4), "other": "x"})
    left = without_leftovers(raw, labels_are_current=False)
    read = gpu_node(left)
    assert read is not None
    assert (read.product, read.gpus, read.single) == ("NVIDIA-A100-SXM4-40GB", 4, None)
    assert (read.memory_mib, read.replicas, read.divvy) == (None, {}, False)
    assert read.driver == "550.163.01"
    assert left["metadata"]["annotations"] == {"other": "x"}
    assert raw["metadata"]["annotations"].keys() == {"divvy.gpu/status", "other"}


def test_forgets_the_status_alone_where_labels_are_current() -> None:
    raw = node("gpu-1", {}, SINGLE, annotations=status(4))
    left = without_leftovers(raw, labels_are_current=True)
    assert left["metadata"] == {**raw["metadata"], "annotations": {}}
