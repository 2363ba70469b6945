"""The plan: the article's arithmetic, sums, and what is promised."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.model import parse_cluster
from divvy.plan import level, plan
from divvy.plan.predict.claimable import BY_CLAIMS
from divvy.render.views.words import device_words
from tests.model import published_tables
from tests.plan.stacks import example, planned, pool

PROFILES = {
    "whole": {},
    "slice-4": {"timeSlicing": {"replicas": 4}},
    "watched": {"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}},
    "prevented": {
        "timeSlicing": {
            "replicas": 4,
            "memoryLimit": {"limit": "3000Mi", "action": "prevent"},
            "compute": "cap",
        }
    },
    "oversubscribed": {
        "timeSlicing": {
            "replicas": 4,
            "memoryLimit": {"limit": "auto", "action": "prevent", "oversubscribe": 2},
        }
    },
    "mix": {"mig": {"2g.10gb": 2, "1g.5gb": 3}},
    "seven": {"mig": {"1g.5gb": 7}},
    "single": {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}},
    "sliced-mig": {"mig": {"3g.20gb": 2}, "timeSlicing": {"replicas": 4}},
    "split": [
        {"devices": [0, 1], "mig": {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}},
        {"devices": [2], "timeSlicing": {"replicas": 6}},
    ],
}


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("whole", {"nvidia.com/gpu": 4}),
        ("slice-4", {"nvidia.com/gpu.shared": 16}),
        ("mix", {"nvidia.com/mig-2g.10gb": 8, "nvidia.com/mig-1g.5gb": 12}),
        ("single", {"nvidia.com/gpu": 28}),
        ("seven", {"nvidia.com/mig-1g.5gb": 28}),
        ("sliced-mig", {"nvidia.com/mig-3g.20gb.shared": 32}),
        (
            "split",
            {
                "nvidia.com/gpu": 1,
                "nvidia.com/gpu.shared": 6,
                "nvidia.com/mig-3g.20gb": 2,
                "nvidia.com/mig-2g.10gb": 2,
                "nvidia.com/mig-1g.5gb": 4,
            },
        ),
    ],
)
def test_predicts_a_node_with_four_a100(profile, expected):
    (only,) = planned(PROFILES, main=pool(profile)).pools
    assert only.node.per_node == expected


def test_predicts_the_articles_node_in_all_its_states():
    states = {p.name: dict(p.node.per_node) for p in plan(example("cern"), "cern").pools}
    assert states == {
        "whole": {"nvidia.com/gpu": 4},
        "slice-4": {"nvidia.com/gpu.shared": 16},
        "slice-10": {"nvidia.com/gpu.shared": 40},
        "mixed-layout": {"nvidia.com/mig-1g.5gb": 12, "nvidia.com/mig-2g.10gb": 8},
        "seven-mixed": {"nvidia.com/mig-1g.5gb": 28},
        "seven-single": {"nvidia.com/gpu": 28},
    }


@st.composite
def clusters(draw):
    pools = {}
    for number in range(draw(st.integers(1, 4))):
        profiles = ["whole", "mix", "seven", "sliced-mig"]
        count = draw(st.integers(0, 5))
        nodes = draw(st.lists(st.integers(1, 9), max_size=count, unique=True))
        pools[f"p{number}"] = pool(
            draw(st.sampled_from(profiles)),
            count,
            gpus=draw(st.integers(1, 8)),
            overrides={f"n{number}-{node}": draw(st.sampled_from(profiles)) for node in nodes},
        )
    return planned(PROFILES, **pools)


@settings(max_examples=50)
@given(clusters())
def test_adds_up_totals(prediction):
    _check_sums(prediction)


def _check_sums(prediction):
    total = Counter()
    for predicted_pool in prediction.pools:
        nodes = [predicted_pool.node] * (predicted_pool.count - len(predicted_pool.overrides)) + [
            *predicted_pool.overrides.values()
        ]
        counted = Counter(device.resource for node in nodes for device in node.devices)
        advertised = {n: c for n, c in predicted_pool.totals.items() if not n.endswith(BY_CLAIMS)}
        assert advertised == counted
        total += predicted_pool.totals
    assert prediction.totals == total


def test_predicts_devices_of_the_size_that_the_card_prints():
    (only,) = planned(PROFILES, main=pool("mix")).pools
    rows = published_tables.rows("A100-SXM4-40GB")
    sizes = {name: (memory, sms) for name, _, _, memory, sms, *_ in rows}
    for device in only.node.devices:
        memory, sms = sizes[device.placement.profile]
        assert (round(device.memory_mib / 1024, 2), device.sms) == (memory, sms)
    assert [device.placement.start for device in only.node.gpus[0].devices] == [0, 2, 4, 5, 6]


def levels(profile):
    (only,) = planned(PROFILES, main=pool(profile)).pools
    return [level(words) for _, words in only.node.devices[0].guarantees.items()]


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("whole", ["exclusive", "exclusive", "isolated", "whole card"]),
        ("slice-4", ["none", "time-shared", "shared", "whole card"]),
        ("watched", ["watched", "time-shared", "shared", "whole card"]),
        ("prevented", ["prevented", "capped", "shared", "share"]),
        ("oversubscribed", ["prevented", "time-shared", "shared", "share"]),
        ("seven", ["hard", "hard", "isolated", "slice"]),
        ("single", ["hard", "hard", "isolated", "slice"]),
        ("sliced-mig", ["none", "time-shared", "shared", "slice"]),
    ],
)
def test_guarantees_what_the_mechanism_enforces(profile, expected):
    assert levels(profile) == expected


def test_calls_a_watched_share_watched_not_safe():
    (only,) = planned(PROFILES, main=pool("watched")).pools
    assert only.node.devices[0].guarantees.memory == (
        "watched: usage above 10240 MiB is noticed, not prevented"
    )
    assert only.node.devices[0].memory_mib == 40960


def test_calls_a_limited_share_no_boundary():
    (only,) = planned(PROFILES, main=pool("prevented")).pools
    assert only.node.devices[0].guarantees.memory == (
        "prevented: allocations above 3000 MiB fail, by the driver library in the container; "
        "a program that goes around that library is reported, not stopped; what the driver itself "
        "takes (first contexts, compressed modules) is counted seconds later"
    )


def test_says_that_an_oversubscribed_share_may_use_host_memory():
    (only,) = planned(PROFILES, main=pool("oversubscribed")).pools
    assert only.node.devices[0].memory_mib == 20480
    assert only.node.devices[0].guarantees.memory.endswith(
        "; what the GPU has no room for goes to host memory, which is slow"
    )


def test_counts_other_vendors_devices_on_every_node():
    (training, _) = plan(example("h200"), "h200").pools
    assert training.node.per_node["rdma/hca"] == 16
    assert training.totals["rdma/hca"] == 16 * 16


def test_predicts_nothing_without_hardware():
    (only,) = planned(PROFILES, main={"profile": "whole"}).pools
    assert (only.count, only.node, only.totals) == (None, None, {})


def test_notes_rules_by_uuid():
    uuid = "GPU-00000001-0000-0000-0000-000000000000"
    profiles = {"u": [{"devices": [uuid], "timeSlicing": {"replicas": 2}}]}
    (only,) = planned(profiles, main=pool("u")).pools
    assert only.node.per_node == {"nvidia.com/gpu": 4}
    assert "selects by UUID" in only.node.notes[0]


HARDWARE = {"model": "T4", "gpus": 2, "count": 3}
UNDESCRIBED = {"model": "NVIDIA Z1", "memory": "24Gi", "gpus": 2, "count": 3}


def test_plans_a_model_without_data_by_the_memory_in_the_file():
    value = {
        "profiles": {"p": {"timeSlicing": {"replicas": 4, "memoryLimit": "auto"}}},
        "pools": {"main": {"hardware": UNDESCRIBED, "profile": "p"}},
    }
    (main,) = plan(parse_cluster(value), "s").pools
    assert main.node is not None
    assert main.totals == {"nvidia.com/gpu.shared": 24}
    device = main.node.devices[0]
    assert (device.memory_mib, device.sms) == (24 * 1024, None)
    assert device_words(device) == "GPU shared by 4: 24,576 MiB, SMs unknown"
    (note,) = main.node.notes
    assert "its MIG geometry are not known" in note


def test_notes_nothing_for_a_model_with_data():
    value = {"profiles": {"p": {}}, "pools": {"main": {"hardware": HARDWARE, "profile": "p"}}}
    (main,) = plan(parse_cluster(value), "s").pools
    assert main.node is not None
    assert main.node.notes == ()
