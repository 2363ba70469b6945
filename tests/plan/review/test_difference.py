"""The topology diff and what it demands."""

from collections import Counter

import pytest
from hypothesis import given, settings

from divvy.plan import diff
from tests.plan.predict.test_prediction import PROFILES, clusters
from tests.plan.stacks import planned, pool


@settings(max_examples=30)
@given(clusters())
def test_finds_no_difference_of_a_plan_from_itself(predicted):
    difference = diff(predicted, predicted)
    assert not difference
    assert difference.totals == ()


def deltas(difference):
    """Return what a diff adds and takes, pool by pool."""
    moved = Counter()
    for change in difference.changes:
        for row in change.resources:
            moved[change.pool, row.resource] += row.after - row.before
    return {key: number for key, number in moved.items() if number}


@settings(max_examples=60)
@given(clusters(), clusters(), clusters())
def test_composes_diffs(first, second, third):
    steps = Counter(deltas(diff(first, second)))
    steps.update(deltas(diff(second, third)))
    assert {key: n for key, n in steps.items() if n} == deltas(diff(first, third))
    assert deltas(diff(second, first)) == {k: -n for k, n in deltas(diff(first, second)).items()}


@settings(max_examples=60)
@given(clusters(), clusters())
def test_adds_the_changes_up_to_the_totals(before, after):
    difference = diff(before, after)
    moved = Counter()
    for (_, resource), number in deltas(difference).items():
        moved[resource] += number
    changes = {total.resource: total.after - total.before for total in difference.totals}
    assert changes == {resource: number for resource, number in moved.items() if number}
    assert bool(difference) or before.totals == after.totals


def only(before, after):
    (change,) = diff(before, after).changes
    return change


def change(before, after, **more):
    return only(
        planned(PROFILES, main=pool(before, **more)), planned(PROFILES, main=pool(after, **more))
    )


def test_requires_idle_gpus_from_shares_to_mig():
    moved = change("slice-4", "seven", count=3)
    assert (moved.nodes_before, moved.nodes_after) == (3, 3)
    rows = {row.resource: (row.before, row.after) for row in moved.resources}
    assert rows == {"nvidia.com/gpu.shared": (48, 0), "nvidia.com/mig-1g.5gb": (0, 84)}
    assert moved.disruption.level == "GPUs must be idle"
    assert moved.disruption.gpus == (0, 1, 2, 3)
    assert moved.disruption.reason == "MIG mode is switched on and the GPU is reset"


def test_needs_no_reset_on_hopper():
    cut = {**PROFILES, "hopper": {"mig": {"1g.10gb": 7}}}
    hopper = {"model": "H100-SXM5-80GB"}
    before = planned(cut, main=pool("whole", **hopper))
    moved = only(before, planned(cut, main=pool("hopper", **hopper)))
    assert moved.disruption.reason == "MIG mode is switched on"


@pytest.mark.parametrize(
    ("before", "after", "level", "reason"),
    [
        ("whole", "slice-4", "GPUs must be idle", "nvidia.com/gpu becomes nvidia.com/gpu.shared"),
        ("slice-4", "watched", "new pods only", "running pods keep what they have"),
        ("seven", "mix", "GPUs must be idle", "MIG devices that go must be free: 4 × 1g.5gb"),
        ("seven", "whole", "GPUs must be idle", "MIG mode is switched off and the GPU is reset"),
    ],
)
def test_grades_the_disruption_of_a_change(before, after, level, reason):
    moved = change(before, after).disruption
    assert (moved.level, moved.reason) == (level, reason)


def test_leaves_other_instances_alone_when_adding_some():
    profiles = {"few": {"mig": {"3g.20gb": 1}}, "more": {"mig": {"3g.20gb": 1, "2g.10gb": 1}}}
    more = only(planned(profiles, main=pool("few")), planned(profiles, main=pool("more")))
    assert more.disruption.level == "new pods only"
    fewer = only(planned(profiles, main=pool("more")), planned(profiles, main=pool("few")))
    assert fewer.disruption.reason == "MIG devices that go must be free: 1 × 2g.10gb"


def test_requires_idle_instances_that_stay_and_are_shared():
    layout = {"mig": {"3g.20gb": 1, "2g.10gb": 1}}
    sliced = {**layout, "timeSlicing": {"replicas": 2, "renameByDefault": False}}
    profiles = {"few": {"mig": {"3g.20gb": 1}}, "sliced": sliced}
    shared = only(planned(profiles, main=pool("few")), planned(profiles, main=pool("sliced")))
    assert shared.disruption.level == "GPUs must be idle"
    assert shared.disruption.reason == "nvidia.com/mig-3g.20gb is shared in another way"


def test_judges_pools_that_swap_what_they_select():
    before, after = (
        planned(
            PROFILES,
            a=pool("whole", select={"pool": first}),
            b=pool("seven", select={"pool": second}),
        )
        for first, second in ("ab", "ba")
    )
    swapped = diff(before, after)
    assert [setting.path for setting in swapped.settings] == [
        "pools.a.select.pool",
        "pools.b.select.pool",
    ]
    assert set(swapped.unpredicted.values()) == {"GPUs must be idle"}


def test_names_only_the_gpus_that_change():
    moved = change("whole", "split")
    assert moved.disruption.gpus == (0, 1, 2)


def test_disrupts_no_existing_node_when_nodes_are_added():
    before, after = (planned(PROFILES, main=pool("seven", count=n)) for n in (2, 5))
    moved = only(before, after)
    assert moved.disruption.level == "none"
    (row,) = moved.resources
    assert (row.before, row.after, row.per_node_after) == (56, 140, 28)


def test_limits_an_override_to_its_node():
    before = planned(PROFILES, main=pool("slice-4", count=3))
    after = planned(PROFILES, main=pool("slice-4", count=3, overrides={"n1": "mix"}))
    moved = only(before, after)
    assert (moved.node, moved.nodes_before, moved.nodes_after) == ("n1", 1, 1)
    assert {row.resource: row.after - row.before for row in moved.resources} == {
        "nvidia.com/gpu.shared": -16,
        "nvidia.com/mig-1g.5gb": 12,
        "nvidia.com/mig-2g.10gb": 8,
    }


def test_shows_changed_guarantees_when_numbers_stay():
    (row,) = change("slice-4", "watched").resources
    assert (row.before, row.after) == (16, 16)
    assert row.guarantees_before.memory.startswith("none")
    assert row.guarantees_after.memory.startswith("watched")


def test_shows_no_earlier_guarantees_for_a_new_resource():
    rows = {row.resource: row for row in change("whole", "slice-4").resources}
    assert rows["nvidia.com/gpu.shared"].guarantees_before is None
    assert rows["nvidia.com/gpu"].guarantees_after is None


def test_shows_pools_that_come_and_go():
    before = planned(PROFILES, a=pool("whole"))
    after = planned(PROFILES, b=pool("seven"))
    came, went = diff(before, after).changes
    assert (came.pool, came.nodes_before, came.disruption.level) == ("b", 0, "GPUs must be idle")
    assert (went.pool, went.nodes_after, went.disruption.level) == ("a", 0, "new pods only")


def test_requires_idle_gpus_for_other_hardware():
    before = planned(PROFILES, a=pool("whole"))
    after = planned(PROFILES, a=pool("whole", model="T4", gpus=2))
    assert only(before, after).disruption.level == "GPUs must be idle"
