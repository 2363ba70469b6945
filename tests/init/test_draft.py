"""The plan of what `divvy init` writes is what the nodes offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml

from divvy.init.answers import Answer, Answers
from divvy.init.claimed_gpus import ClaimedGpus
from divvy.init.draft import Draft, draft
from divvy.init.gpu_node import gpu_node
from divvy.init.stack_text import remarks, stack_text
from divvy.live.advertised import live_node_of
from divvy.live.live_diff import compare_live
from divvy.model import Cluster, parse_cluster
from tests.init.nodes import TYPE, gfd, hami, node, status

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
A100 = ("NVIDIA-A100-SXM4-40GB", 4, 40960)
CPU = node("cpu-1", {}, machine="cpu")


def drafted(
    nodes: Sequence[Mapping[str, Any]],
    *replies: Answer,
    imported: Mapping[str, Any] | None = None,
    claimed: Mapping[str, ClaimedGpus] | None = None,
) -> Draft:
    answers = Answers(replies)
    read = [
        gpu_node(raw_node, (claimed or {}).get(name), has_gpus=answers.about(name))
        for raw_node in nodes
        for name in [raw_node["metadata"]["name"]]
    ]
    labels = {raw_node["metadata"]["name"]: raw_node["metadata"]["labels"] for raw_node in nodes}
    gpu_nodes = [candidate for candidate in read if candidate is not None]
    return draft(gpu_nodes, labels, answers, imported or {}, claimed or {})


def written(proposal: Draft) -> Cluster:
    """Return what the file says that is written for a draft."""
    text = stack_text(proposal, (), {}, {})
    return parse_cluster(yaml.safe_load(text)["config"]["divvy:cluster"])


def equal(proposal: Draft, nodes: Sequence[Mapping[str, Any]]) -> Cluster:
    """Require that the plan is what these nodes offer, and return the cluster."""
    assert not proposal.questions
    cluster = written(proposal)
    left_out = {name for omission in proposal.left_out for name in omission.nodes}
    live = [
        live_node_of(raw_node) for raw_node in nodes if raw_node["metadata"]["name"] not in left_out
    ]
    difference = compare_live(cluster, "test", live)
    assert not difference, difference
    assert difference.compared == len(proposal.nodes)
    return cluster


def profile(proposal: Draft) -> Any:
    """Return the only profile."""
    (value,) = proposal.cluster["profiles"].values()
    return value


NVIDIA = {"failRequestsGreaterThanOne": False}
OFFERS = {
    "whole": ({GPU: 4}, gfd(*A100), {}),
    "time-slicing": (
        {GPU: 16},
        gfd("NVIDIA-A100-SXM4-40GB-SHARED", 4, 40960, replicas=4),
        {"timeSlicing": {"replicas": 4, "renameByDefault": False, **NVIDIA}},
    ),
    "time-slicing, renamed": (
        {GPU: 0, SHARED: 16},
        gfd(*A100, replicas=4),
        {"timeSlicing": {"replicas": 4, **NVIDIA}},
    ),
    "MPS": (
        {GPU: 40},
        gfd("NVIDIA-A100-SXM4-40GB-SHARED", 4, 40960, replicas=10, sharing="mps"),
        {
            "mps": {
                "replicas": 10,
                "renameByDefault": False,
                "failRequestsGreaterThanOne": True,
            }
        },
    ),
    "MIG, mixed": (
        {"nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-1g.5gb": 12},
        gfd(*A100, strategy="mixed", mig_1g_5gb=(12, 1), mig_2g_10gb=(8, 1)),
        {"mig": {"1g.5gb": 3, "2g.10gb": 2}},
    ),
    "MIG, mixed, on some GPUs": (
        {GPU: 2, "nvidia.com/mig-1g.5gb": 14},
        gfd(*A100, strategy="mixed", mig_1g_5gb=(14, 1)),
        [{"devices": [0, 1], "mig": {"1g.5gb": 7}}, {"devices": [2, 3]}],
    ),
    "MIG, mixed, shared and renamed": (
        {"nvidia.com/mig-3g.20gb.shared": 32},
        gfd(*A100, strategy="mixed", mig_3g_20gb=(8, 4)),
        {"mig": {"3g.20gb": 2}, "timeSlicing": {"replicas": 4, **NVIDIA}},
    ),
    "MIG with attributes": (
        {"nvidia.com/mig-1g.5gb.me": 4, "nvidia.com/mig-1g.5gb": 24},
        gfd(*A100, strategy="mixed"),
        {"mig": {"1g.5gb": 6, "1g.5gb+me": 1}},
    ),
}


@pytest.mark.parametrize("case", OFFERS)
def test_drafts_profiles_of_gpu_operators_nodes(case: str) -> None:
    offered, labels, expected = OFFERS[case]
    nodes = [node("gpu-1", offered, labels), node("gpu-2", offered, labels), CPU]
    proposal = drafted(nodes)
    assert profile(proposal) == expected
    cluster = equal(proposal, nodes)
    pool = cluster.pools["gpu"]
    assert pool.select == {TYPE: "gpu"}
    assert (pool.hardware.model, pool.hardware.gpus, pool.hardware.count) == (
        "A100-SXM4-40GB",
        4,
        2,
    )


SINGLE = gfd("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", 28, 4864, strategy="single")


def test_asks_how_many_gpus_a_single_strategy_hides() -> None:
    nodes = [node("gpu-1", {GPU: 28}, SINGLE)]
    (question,) = drafted(nodes).questions
    assert (question.kind, question.guess, question.option) == ("gpus", 4, "--gpus 'gpu-1=4'")
    proposal = drafted(nodes, Answer("gpus", "*", "4"))
    assert profile(proposal) == {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}
    equal(proposal, nodes)


def test_drafts_a_shared_single_strategy() -> None:
    labels = gfd("NVIDIA-A100-SXM4-40GB-MIG-3g.20gb", 4, 20096, replicas=2, strategy="single")
    nodes = [node("gpu-1", {SHARED: 8}, labels)]
    proposal = drafted(nodes, Answer("gpus", "gpu-*", "2"))
    assert profile(proposal)["timeSlicing"] == {"replicas": 2, **NVIDIA}
    equal(proposal, nodes)


def test_asks_about_a_plugin_without_feature_labels() -> None:
    nodes = [node("gpu-1", {GPU: 16}), node("gpu-2", {GPU: 16}), CPU]
    (question,) = drafted(nodes).questions
    assert question.text == "GPU model of gpu-1, gpu-2 (they offer 16 × nvidia.com/gpu)"
    (question,) = drafted(nodes, model := Answer("model", "*", "T4")).questions
    assert question.guess == 16
    proposal = drafted(nodes, model, Answer("gpus", "*", "4"))
    assert profile(proposal)["timeSlicing"]["replicas"] == 4
    equal(proposal, nodes)
    equal(drafted(nodes, model, Answer("gpus", "*", "16")), nodes)


def test_asks_about_mig_without_feature_labels() -> None:
    offered = {"nvidia.com/mig-3g.20gb": 2, "nvidia.com/mig-1g.5gb": 14}
    nodes = [node("gpu-1", offered)]
    model = Answer("model", "*", "A100-40GB")
    (question,) = drafted(nodes, model).questions
    assert question.guess == 3
    proposal = drafted(nodes, model, Answer("gpus", "*", "3"))
    equal(proposal, nodes)
    assert proposal.assumed == ("split",)


def test_reads_divvys_own_labels_on_a_node_with_everything() -> None:
    offered = {
        GPU: 1,
        SHARED: 6,
        "nvidia.com/mig-1g.5gb": 4,
        "nvidia.com/mig-2g.10gb": 2,
        "nvidia.com/mig-3g.20gb": 2,
    }
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
        "nvidia.com/gpu.memory": "40960",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.replicas": "6",
        "nvidia.com/mig.strategy": "mixed",
    }
    nodes = [node("gpu-a100", offered, labels, annotations=status(4))]
    proposal = drafted(nodes)
    equal(proposal, nodes)
    (rules,) = proposal.cluster["profiles"].values()
    # The agent's own defaults: nothing to write out.
    assert {"devices": [2], "timeSlicing": {"replicas": 6}} in rules


def test_drafts_pools_by_hardware_and_sharing() -> None:
    t4 = gfd("Tesla-T4-SHARED", 1, 15360, replicas=8)
    nodes = [
        node("a-1", {GPU: 4}, gfd(*A100), machine="p4"),
        node("a-2", {SHARED: 16}, gfd(*A100, replicas=4), machine="p4"),
        node("a-3", {GPU: 4}, gfd(*A100), machine="p4"),
        node("t-1", {GPU: 8}, t4, machine="g4"),
        CPU,
    ]
    cluster = equal(drafted(nodes), nodes)
    assert set(cluster.pools) == {"p4", "g4"}
    assert cluster.pools["p4"].overrides == {"a-2": "slice-4"}


def test_drafts_pools_by_a_label_that_distinguishes_sharing() -> None:
    nodes = [
        node("a-1", {GPU: 4}, {**gfd(*A100), "team": "train"}),
        node("a-2", {SHARED: 16}, {**gfd(*A100, replicas=4), "team": "notebooks"}),
        node("cpu", {}, {"team": "train"}, machine="cpu"),
    ]
    cluster = equal(drafted(nodes), nodes)
    assert set(cluster.pools) == {"gpu-train", "gpu-notebooks"}


def test_selects_no_pool_by_labels_that_gpu_software_changes() -> None:
    nodes = [node("a-1", {GPU: 4}, gfd(*A100), machine=None), node("cpu", {}, machine=None)]
    cluster = equal(drafted(nodes), nodes)
    assert cluster.pools["gpus"].select is None


def test_drafts_a_pool_of_each_node_without_a_distinguishing_label() -> None:
    nodes = [
        node("A.1", {GPU: 4}, gfd(*A100), machine=None),
        node("a-1", {GPU: 1}, gfd("Tesla-T4", 1, 15360), machine=None),
    ]
    proposal = drafted(nodes)
    assert set(equal(proposal, nodes).pools) == {"a-1", "a-1-2"}  # their names clash
    assert any("every node is a pool: label them" in remark for remark in remarks(proposal, ()))


def test_names_no_profile_that_a_nodes_label_would_choose() -> None:
    label = {"nvidia.com/device-plugin.config": "slice-4"}
    nodes = [
        node("a-1", {SHARED: 16}, gfd(*A100, replicas=4)),
        node("a-2", {GPU: 4}, {**gfd(*A100), **label}),
    ]
    cluster = equal(drafted(nodes), nodes)
    assert "slice-4" not in cluster.profiles
    assert "slice-4-2" in cluster.profiles


def test_renames_imported_profiles_that_a_nodes_label_would_choose() -> None:
    imported = {
        "any": {"timeSlicing": {"replicas": 4, "renameByDefault": False, **NVIDIA}},
        "all-disabled": {},
        "all-1g.5gb": {"mig": {"1g.5gb": 7}},
    }
    sliced = gfd("NVIDIA-A100-SXM4-40GB-SHARED", 4, 40960, replicas=4)
    mig = {"nvidia.com/mig.config": "all-disabled"}
    nodes = [
        node("a-1", {GPU: 16}, {**sliced, **mig}, machine="a"),
        node(
            "b-1", {GPU: 4}, {**gfd(*A100), "nvidia.com/device-plugin.config": "any"}, machine="b"
        ),
    ]
    proposal = drafted(nodes, imported=imported)
    cluster = equal(proposal, nodes)
    assert list(cluster.profiles) == ["any-2", "all-disabled-2", "all-1g.5gb"]
    assert cluster.pools["a"].profile == "any-2"
    assert proposal.renamed == {"any": "any-2", "all-disabled": "all-disabled-2"}
    assert any("any is any-2" in line for line in remarks(proposal, ()))


def test_keeps_the_name_of_an_imported_profile_that_its_nodes_labels_choose() -> None:
    imported = {"any": {"timeSlicing": {"replicas": 4, **NVIDIA}}, "all-disabled": {}}
    labels = {
        "nvidia.com/device-plugin.config": "any",
        # It counts only if the first label names no profile.
        "nvidia.com/mig.config": "all-disabled",
    }
    nodes = [node("a-1", {SHARED: 16}, {**gfd(*A100, replicas=4), **labels})]
    proposal = drafted(nodes, imported=imported)
    cluster = written(proposal)
    assert list(cluster.profiles) == ["any", "all-disabled"]
    assert not proposal.renamed
    (difference,) = compare_live(cluster, "test", [live_node_of(raw) for raw in nodes]).nodes
    assert (difference.bypass, difference.resources) == ("nvidia.com/device-plugin.config=any", ())


def test_keeps_the_name_that_a_label_chooses_for_a_node_that_offers_nothing_yet() -> None:
    label = {"nvidia.com/mig.config": "all-1g.5gb"}
    nodes = [
        node("a-1", {"nvidia.com/mig-1g.5gb": 28}, {**gfd(*A100, strategy="mixed"), **label}),
        node("a-2", {}, {**gfd(*A100), **label}),
    ]
    proposal = drafted(nodes, imported={"all-1g.5gb": {"mig": {"1g.5gb": 7}}})
    assert "all-1g.5gb" in written(proposal).profiles
    assert not proposal.renamed


def test_uses_profiles_of_files_that_offer_the_same() -> None:
    imported = {
        "sliced": {"timeSlicing": {"replicas": 4, "failRequestsGreaterThanOne": True}},
        "all-1g.5gb": {"mig": {"1g.5gb": 7}},
        "all-1g.34gb": {"mig": {"1g.34gb": 7}},  # of a model whose data is not published
        "all-9g.34gb": {"mig": {"9g.34gb": 7}},  # of none
    }
    nodes = [
        node("a-1", {SHARED: 16}, gfd(*A100, replicas=4), machine="p4"),
        node("a-2", {GPU: 28}, SINGLE, machine="p4-mig"),
    ]
    proposal = drafted(nodes, Answer("gpus", "a-2", "4"), imported=imported)
    cluster = equal(proposal, nodes)
    assert cluster.pools["p4"].profile == "sliced"
    assert cluster.pools["p4-mig"].profile == "all-1g.5gb"
    assert "all-1g.34gb" in cluster.profiles
    assert "all-9g.34gb" not in cluster.profiles


def test_says_that_a_mig_layout_is_invalid_instead_of_whole_gpus() -> None:
    labels = gfd("NVIDIA-A100-SXM4-80GB-MIG-INVALID", 0, 0, replicas=0, strategy="single")
    labels["nvidia.com/mig.config"] = "all-balanced"
    nodes = [node("cpu-1", {}, machine="cpu"), node("n", {GPU: 0}, labels)]
    proposal = drafted(nodes, Answer("gpus", "*", 8))
    assert not proposal.cluster
    (left_out,) = proposal.left_out
    assert left_out.nodes == ("n",)
    assert "has a MIG layout that the strategy single cannot name" in left_out.reason
    assert "nvidia.com/mig.config asks for all-balanced" in left_out.reason


def test_recognises_what_hami_splits() -> None:
    nodes = [node("gpu-1", {GPU: 20}, annotations=hami("Tesla T4", 2, 10))]
    proposal = drafted(nodes)
    assert profile(proposal)["timeSlicing"]["replicas"] == 10
    equal(proposal, nodes)


def test_names_nodes_that_no_file_can_describe() -> None:
    fine = node("a-1", {GPU: 4}, gfd(*A100), machine="p4")
    nodes = [
        fine,
        node("a-2", {"nvidia.com/gpu-vm": 4}, gfd(*A100), machine="p4"),
        node("a-3", {GPU: 2, "nvidia.com/mig-1g.5gb": 15}, gfd(*A100), machine="p4"),
        node("a-4", {}, gfd(*A100), machine="p4", annotations=status(4)),
        node("a-5", {}, gfd(*A100), machine="p4"),
    ]
    others = ClaimedGpus(problem="is served to ResourceClaims by gpu.example.com")
    proposal = drafted(nodes, claimed={"a-5": others})
    reasons = {omission.nodes: omission.reason for omission in proposal.left_out}
    assert "offers nvidia.com/gpu-vm" in reasons[("a-2",)]
    assert "cannot hold 15 × nvidia.com/mig-1g.5gb" in reasons[("a-3",)]
    assert "served by Divvy already" in reasons[("a-4",)]
    assert "by gpu.example.com" in reasons[("a-5",)]
    # No label tells a-1 from them, so it is a pool of its own.
    cluster = written(proposal)
    assert [pool.select for pool in cluster.pools.values()] == [{"kubernetes.io/hostname": "a-1"}]


def test_plans_a_sick_gpu_as_healthy() -> None:
    nodes = [node("a-1", {GPU: 3}, {**gfd(*A100)}, capacity={GPU: 4})]
    proposal = drafted(nodes)
    assert proposal.reduced == ("a-1",)
    assert profile(proposal) == {}


def test_gives_whole_gpus_to_a_node_that_offers_nothing_yet() -> None:
    nodes = [node("a-1", {}, gfd(*A100)), node("b-1", {}, machine="b")]
    proposal = drafted(nodes, Answer("gpus", "b-*", "2"), Answer("model", "b-*", "T4"))
    assert proposal.idle == ("a-1", "b-1")
    cluster = written(proposal)
    assert {pool.hardware.model for pool in cluster.pools.values()} == {"A100-SXM4-40GB", "T4"}


def test_asks_at_once_about_a_node_that_offers_nothing_yet() -> None:
    nodes = [node("b-1", {}, {"nvidia.com/gpu.present": "true"}, machine="b")]
    assert [query.kind for query in drafted(nodes).questions] == ["model", "gpus"]
    (question,) = drafted(nodes, Answer("model", "b-*", "T4")).questions
    assert question.option == "--gpus 'b-1=NUMBER'"


def test_predicts_nothing_for_an_unknown_model() -> None:
    nodes = [node("a-1", {SHARED: 8}, gfd("NVIDIA-RTX-A5000", 2, 24564, replicas=4))]
    proposal = drafted(nodes, imported={"wrong": {"timeSlicing": {"replicas": 2}}})
    assert proposal.unknown == ("NVIDIA-RTX-A5000",)
    assert proposal.cluster["pools"]["gpu"] == {"select": {TYPE: "gpu"}, "profile": "slice-4"}


def test_reads_taints_runtime_and_system_of_a_pool() -> None:
    taints = (
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "team", "value": "ml", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},
        {"key": "ebs.csi.aws.com/agent-not-ready", "effect": "NoExecute"},
        {"key": "node-role.kubernetes.io/gpu", "value": "true", "effect": "NoSchedule"},
    )
    system = {
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "22.04",
    }
    nodes = [
        node("a-1", {GPU: 4}, {**gfd(*A100), **system}, taints=taints, runtime="cri-o://1.34.0")
    ]
    pool = equal(drafted(nodes), nodes).pools["gpu"]
    assert [
        (toleration.key, toleration.operator, toleration.value, toleration.effect)
        for toleration in pool.tolerations
    ] == [
        ("node-role.kubernetes.io/gpu", "Equal", "true", "NoSchedule"),
        ("nvidia.com/gpu", "Exists", None, "NoSchedule"),
        ("team", "Equal", "ml", "NoExecute"),
    ]
    assert pool.runtime.name == "cri-o"
    assert pool.hardware.os == "ubuntu22.04"


def test_keeps_equal_nodes_in_one_pool_if_one_has_a_taint_of_its_own() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    nodes = [
        node(f"a-{number}", {GPU: 4}, gfd(*A100), taints=(taint,) if number == 3 else ())
        for number in range(4)
    ]
    (pool,) = equal(drafted([*nodes, CPU]), nodes).pools.values()
    assert pool.select == {TYPE: "gpu"}
    assert [toleration.key for toleration in pool.tolerations] == ["dedicated"]


def test_parts_nodes_with_other_taints_by_a_label() -> None:
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    nodes = [
        node("a-1", {GPU: 4}, gfd(*A100), machine="a"),
        node("b-1", {GPU: 4}, gfd(*A100), machine="b", taints=(taint,)),
    ]
    pools = equal(drafted(nodes), nodes).pools
    assert {name: len(pool.tolerations) for name, pool in pools.items()} == {"a": 0, "b": 1}


def test_reports_nodes_without_any_sign_of_gpus() -> None:
    assert drafted([CPU]) == Draft()


def test_makes_pools_of_nodes_that_nvidias_dra_driver_serves() -> None:
    """Beside a node of the device plugin: the file has both, and NVIDIA's classes."""
    plugin = node("a-1", {GPU: 4}, gfd(*A100), machine="p4")
    served = node("b-1", {}, {}, machine="p4d")
    gpus = ClaimedGpus(8, "NVIDIA-A100-SXM4-40GB", 40960, {"claims": {"mig": ["1g.5gb"]}})
    proposal = drafted([plugin, served], claimed={"b-1": gpus})
    assert (proposal.left_out, proposal.idle) == ((), ())
    cluster = written(proposal)
    assert cluster.names.classes == "nvidia"
    (pool,) = (pool for pool in cluster.pools.values() if pool.select == {TYPE: "p4d"})
    assert pool.hardware is not None
    assert (pool.hardware.model, pool.hardware.gpus) == ("A100-SXM4-40GB", 8)
    assert cluster.profiles[pool.profile].rules[0].claims is not None


def test_names_no_class_of_nvidias_where_its_dra_driver_serves_nobody() -> None:
    assert "names" not in drafted([node("a-1", {GPU: 4}, gfd(*A100))]).cluster
