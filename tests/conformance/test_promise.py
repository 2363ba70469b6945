"""What the plan promises for live nodes."""

import copy
import json

from conformance.observe.device_memory import memory_fits
from conformance.promise import claim_promises, device_promises
from divvy.live.live_diff import live_node
from tests.conformance.promised_nodes import CLUSTER, live, promised


def test_expects_what_a_label_on_the_node_selects() -> None:
    nodes = promised(
        CLUSTER,
        live("odd", **{"divvy.gpu/profile": "x"}),
        live("plain"),
        live("tried", **{"divvy.gpu/profile": "slices"}),
    )
    assert {node.name: (node.profile, dict(node.plan.per_node)) for node in nodes} == {
        "plain": ("whole", {"nvidia.com/gpu": 2}),
        "tried": ("slices", {"nvidia.com/gpu.shared": 8}),
        "odd": ("whole", {"nvidia.com/gpu": 2}),
    }


def test_expects_nothing_of_nodes_without_gpus_in_a_default_pool() -> None:
    nodes = (live("control-plane", {"cpu": "4"}), live("cpu-1", {}), live("gpu-1"))
    # The agent of a default pool runs on CPU nodes too, and says that there is no driver.
    agent = json.dumps({"state": "Degraded", "reason": "no NVIDIA driver", "gpus": []})
    with_agent = live_node("cpu-2", {}, {"divvy.gpu/status": agent}, {"rdma/hca": "0"})
    assert [node.name for node in promised(CLUSTER, *nodes, with_agent)] == ["gpu-1"]
    known = live("gpu-2", {}, **{"feature.node.kubernetes.io/pci-10de.present": "true"})
    assert [node.name for node in promised(CLUSTER, known)] == ["gpu-2"]


def test_tolerates_ecc_memory_on_whole_gpus_but_not_on_mig_devices() -> None:
    (whole,) = device_promises(promised(CLUSTER, live("n1")))
    assert memory_fits(whole, round(15360 * 1.067))
    assert not memory_fits(whole, 15360 * 2)
    assert not memory_fits(whole, None)
    cut = copy.deepcopy(CLUSTER)
    cut["profiles"]["whole"] = {"mig": {"3g.20gb": 2}}
    cut["pools"]["p"]["hardware"]["model"] = "A100-SXM4-40GB"
    (slices,) = device_promises(promised(cut, live("n1")))
    assert not memory_fits(slices, round((slices.device.memory_mib or 0) * 1.067))


def test_claims_every_whole_gpu_that_a_dra_driver_serves() -> None:
    nodes = promised(CLUSTER, live("n1"))
    assert claim_promises(nodes) == []
    assert [str(gpu) for gpu in claim_promises(nodes, all_by_claims=True)] == [
        "n1:GPU 0", "n1:GPU 1",
    ]  # fmt: skip
    partitioned = copy.deepcopy(CLUSTER)
    partitioned["profiles"]["whole"] = {"mig": {"3g.20gb": 2}}
    partitioned["pools"]["p"]["hardware"]["model"] = "A100-SXM4-40GB"
    assert claim_promises(promised(partitioned, live("n1")), all_by_claims=True) == []


def test_includes_a_node_whose_hardware_the_file_does_not_state() -> None:
    unknown = copy.deepcopy(CLUSTER)
    del unknown["pools"]["p"]["hardware"]
    (node,) = promised(unknown, live("n1"))
    assert node.unready == "the stack file does not say which GPUs the nodes of pool p have"
    assert (node.profile, dict(node.plan.per_node)) == ("whole", {})
    assert device_promises([node]) == []
