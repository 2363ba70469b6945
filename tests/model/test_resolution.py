"""From labels to pool, profile and the desired state of every GPU."""

import pytest

from divvy.model import (
    GpuFacts,
    NodeFacts,
    Selection,
    gpu_model,
    parse_cluster,
    resolve,
    select_profile,
)

A100 = gpu_model("A100-SXM4-40GB")
UUIDS = [f"GPU-{number:08x}-0000-0000-0000-000000000000" for number in range(8)]


def cluster(**changes):
    value = {
        "profiles": {
            "whole": {},
            "slice-4": {"timeSlicing": {"replicas": 4}},
            "seven": {"mig": {"1g.5gb": 7}},
            "split": [
                {"devices": [0, 1], "mig": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}},
                {"devices": [2], "timeSlicing": {"replicas": 6, "memoryLimit": "auto"}},
            ],
            "by-uuid": [{"devices": [UUIDS[1]], "mig": {"7g.40gb": 1}}],
            "by-model": [{"devices": "a100*", "timeSlicing": {"replicas": 2}}],
        },
        "pools": {
            "main": {
                "select": {"pool": "main"},
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 4, "count": 3},
                "profile": "split",
                "overrides": {"node-7": "seven"},
            },
            "rest": {"profile": "whole"},
        },
    }
    return parse_cluster({**value, **changes})


def gpus(number=4, model=A100):
    return [
        GpuFacts(index, UUIDS[index], model.product, model.memory_mib, model)
        for index in range(number)
    ]


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("node-1", {"pool": "main"}, ("main", "split", "pool")),
        ("node-7", {"pool": "main"}, ("main", "seven", "override")),
        ("node-7", {}, ("rest", "whole", "pool")),
        (
            "node-7",
            {"pool": "main", "divvy.gpu/profile": "slice-4"},
            ("main", "slice-4", "label:divvy.gpu/profile"),
        ),
        (
            "node-1",
            {"pool": "main", "nvidia.com/mig.config": "seven"},
            ("main", "seven", "label:nvidia.com/mig.config"),
        ),
        ("node-1", {"pool": "main", "nvidia.com/mig.config": "other"}, ("main", "split", "pool")),
        (
            "node-1",
            {"divvy.gpu/profile": "whole", "nvidia.com/device-plugin.config": "slice-4"},
            ("rest", "whole", "label:divvy.gpu/profile"),
        ),
    ],
)
def test_selects_the_profile_by_label_override_or_pool(name, labels, expected):
    selection = select_profile(cluster(), NodeFacts(name, labels))
    assert (selection.pool, selection.profile, selection.source) == expected
    assert selection.problem is None


def test_reports_an_unknown_profile_and_selects_none():
    labels = {"pool": "main", "divvy.gpu/profile": "slice4"}
    selection = select_profile(cluster(), NodeFacts("node-1", labels))
    assert selection.profile is None
    assert "did you mean slice-4?" in selection.problem
    assert resolve(cluster(), selection, gpus()).gpus == ()


def chosen(profile, pool="main"):
    return Selection(pool, profile, "pool", None)


def test_applies_the_first_matching_rule_and_leaves_the_rest_whole():
    node = resolve(cluster(), chosen("split"), gpus())
    assert [gpu.rule for gpu in node.gpus] == [0, 0, 1, -1]
    layout = {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
    assert [gpu.mig for gpu in node.gpus] == [layout, layout, None, None]
    assert [offer.resource for offer in node.gpus[0].offers] == [
        "nvidia.com/mig-3g.20gb",
        "nvidia.com/mig-2g.10gb",
        "nvidia.com/mig-1g.5gb",
    ]
    (shared,) = node.gpus[2].offers
    assert (shared.resource, shared.sharing.replicas, shared.sharing.memory_mib) == (
        "nvidia.com/gpu.shared",
        6,
        40960 // 6,
    )
    assert shared.sharing.one_per_container
    (whole,) = node.gpus[3].offers
    assert (whole.resource, whole.sharing.replicas) == ("nvidia.com/gpu", 1)
    assert node.problems == ()


def test_keeps_indices_on_the_gpus_they_first_meant():
    swapped = {0: UUIDS[3], 1: UUIDS[2], 2: UUIDS[1], 3: UUIDS[0]}
    node = resolve(cluster(), chosen("split"), gpus(), swapped)
    assert [gpu.rule for gpu in node.gpus] == [-1, 1, 0, 0]


def test_offers_an_unassigned_gpu_whole_and_reports_it():
    known = {0: UUIDS[0], 1: UUIDS[1]}
    node = resolve(cluster(), chosen("split"), gpus(3), known)
    assert [gpu.rule for gpu in node.gpus] == [0, 0, -1]
    assert node.problems == ("the node has 3 GPUs, but the stack file says 4",)


def test_selects_gpus_by_uuid_and_model_glob():
    assert [g.rule for g in resolve(cluster(), chosen("by-uuid"), gpus()).gpus] == [-1, 0, -1, -1]
    assert [g.rule for g in resolve(cluster(), chosen("by-model"), gpus()).gpus] == [0] * 4


def test_offers_a_gpu_whole_when_it_cannot_take_its_layout():
    t4 = gpu_model("T4")
    node = resolve(cluster(), chosen("seven"), gpus(2, t4))
    assert [gpu.mig for gpu in node.gpus] == [None, None]
    assert [gpu.offers[0].resource for gpu in node.gpus] == ["nvidia.com/gpu"] * 2
    assert any("T4 has no MIG" in problem for problem in node.problems)
    assert any("the stack file says A100-SXM4-40GB" in problem for problem in node.problems)


def test_offers_an_unknown_card_whole():
    strange = [GpuFacts(0, UUIDS[0], "NVIDIA Z1", 1000, None)]
    node = resolve(cluster(), chosen("seven"), strange)
    assert node.gpus[0].mig is None
    assert any("model is unknown" in problem for problem in node.problems)


@pytest.mark.parametrize(
    ("product", "memory", "model"),
    [("NVIDIA Z1", 16000, None), ("Tesla T4", 24000, gpu_model("T4"))],
)
def test_reports_a_card_that_cannot_be_the_undescribed_one(product, memory, model):
    hardware = {"model": "Z1", "memory": "24Gi", "gpus": 1, "count": 1}
    stack = parse_cluster(
        {"profiles": {"p": {}}, "pools": {"main": {"hardware": hardware, "profile": "p"}}}
    )
    seen = [GpuFacts(0, UUIDS[0], product, memory, model)]
    node = resolve(stack, Selection("main", "p", "pool", None), seen)
    assert node.problems == (f"the node has {product}, but the stack file says Z1",)


def test_offers_a_card_whole_while_its_mig_table_is_unpublished():
    h20 = gpu_model("H20")
    node = resolve(cluster(), chosen("seven"), gpus(1, h20))
    assert node.gpus[0].mig is None
    assert any("are not published" in problem for problem in node.problems)


def test_names_resources_for_single_strategy_replicas_and_own_names():
    single = {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}
    value = {
        "profiles": {
            "single": single,
            "shared": {**single, "timeSlicing": {"replicas": 2}},
            "named": {"timeSlicing": {"replicas": 2, "resourceName": "gpu.half"}},
            "loose": {
                "timeSlicing": {
                    "replicas": 2,
                    "renameByDefault": False,
                    "failRequestsGreaterThanOne": False,
                    "memoryLimit": "6Gi",
                }
            },
        },
        "pools": {"a": {"profile": "single"}},
    }
    parsed = parse_cluster(value)

    def offer(profile):
        (only,) = resolve(parsed, chosen(profile, "a"), gpus(1)).gpus[0].offers
        return only

    assert (offer("single").resource, offer("single").kind) == ("nvidia.com/gpu", "mig")
    assert offer("shared").resource == "nvidia.com/gpu.shared"
    assert offer("named").resource == "nvidia.com/gpu.half"
    loose = offer("loose")
    assert (loose.resource, loose.sharing.memory_mib) == ("nvidia.com/gpu", 6144)
    assert not loose.sharing.is_enforced
    assert not loose.sharing.one_per_container


def test_takes_the_action_of_a_memory_limit():
    limit = {"limit": "auto", "action": "enforce"}
    sharing = {"timeSlicing": {"replicas": 4, "memoryLimit": limit}}
    parsed = parse_cluster({"profiles": {"p": sharing}, "pools": {"a": {"profile": "p"}}})
    (only,) = resolve(parsed, chosen("p", "a"), gpus(1)).gpus[0].offers
    assert (only.sharing.memory_mib, only.sharing.is_enforced) == (10240, True)


@pytest.mark.parametrize(
    ("limit", "mib"), [("auto", 15360), ("10Gi", 10240), ("15Gi", 15360)], ids=str
)
def test_oversubscribes_memory_limits_beyond_the_gpu(limit, mib):
    limits = {"limit": limit, "action": "prevent", "oversubscribe": 1.5}
    sharing = {"timeSlicing": {"replicas": 4, "memoryLimit": limits}}
    parsed = parse_cluster({"profiles": {"p": sharing}, "pools": {"a": {"profile": "p"}}})
    (only,) = resolve(parsed, chosen("p", "a"), gpus(1)).gpus[0].offers
    assert (only.sharing.memory_mib, only.sharing.oversubscribed) == (mib, True)


def test_offers_nothing_on_a_node_without_a_pool():
    only_main = cluster(
        pools={"main": {"select": {"pool": "main"}, "profile": "whole"}},
    )
    selection = select_profile(only_main, NodeFacts("x", {}))
    assert (selection.pool, selection.profile) == (None, None)
    assert resolve(only_main, selection, gpus()).gpus == ()
