"""The verdict on a diff: its worst disruption and what it concerns."""

from __future__ import annotations

from dataclasses import replace

import pytest

from divvy.model import parse_cluster
from divvy.plan import Plan, diff, plan
from divvy.plan.review.object_changes import ObjectChanges
from divvy.plan.review.review import Review
from divvy.plan.review.verdict import Verdict, verdict
from tests.plan.stacks import planned, pool

PROFILES = {
    "whole": {},
    "shared": {"timeSlicing": {"replicas": 4}},
    "more": {"timeSlicing": {"replicas": 8}},
    "seven": {"mig": {"1g.5gb": 7}},
}
BEFORE = planned(PROFILES, a=pool("shared", 3), b=pool("whole", 2), c=pool("whole", 1))


def test_reports_no_disruption_for_equal_plans() -> None:
    assert verdict(diff(BEFORE, BEFORE)) == Verdict("none", 0, 0, (), (), "wait", ())


def test_counts_only_gpus_and_nodes_of_the_worst_level() -> None:
    after = planned(PROFILES, a=pool("more", 3), b=pool("seven", 2), c=pool("seven", 1))
    result = verdict(diff(BEFORE, replace(after, policy="evict")))
    assert (result.level, result.gpus, result.nodes) == ("GPUs must be idle", 12, 3)
    assert (result.pools, result.policy) == (("b", "c"), "evict")
    assert result.withdrawn == ("nvidia.com/gpu",)


def test_counts_the_nodes_that_leave() -> None:
    result = verdict(diff(BEFORE, planned(PROFILES, a=pool("shared", 3), b=pool("whole", 2))))
    assert (result.level, result.nodes, result.pools) == ("new pods only", 1, ("c",))


UUID = "GPU-11111111-1111-1111-1111-111111111111"


def of_profiles(**profiles: object) -> Plan:
    """Return the plan of a pool without hardware, which follows profile p."""
    pools = {"a": {"select": {"pool": "a"}, "profile": "p"}}
    return plan(parse_cluster({"profiles": profiles, "pools": pools}), "test")


@pytest.mark.parametrize(
    ("before", "after", "level", "nodes"),
    [
        (
            of_profiles(p={"timeSlicing": {"replicas": 2}}),
            of_profiles(p={"mig": {"1g.5gb": 7}}),
            "GPUs must be idle",
            "pool a",
        ),
        (
            of_profiles(p={"timeSlicing": {"replicas": 2}}),
            of_profiles(p={"timeSlicing": {"replicas": 4}}),
            "new pods only",
            "pool a",
        ),
        (
            of_profiles(p={"claims": {"shares": {}}}),
            of_profiles(p={"claims": {"shares": {}, "mig": ["1g.5gb"]}}),
            "new pods only",
            "pool a",
        ),
        (
            of_profiles(p={}, lab={"mig": {"3g.20gb": 2}}),
            of_profiles(p={}, lab={"mig": {"1g.5gb": 7}}),
            "GPUs must be idle",
            "nodes whose label chooses profile lab",
        ),
        (
            planned({"p": [{"devices": [UUID], "mig": {"3g.20gb": 2}}, {}]}, a=pool("p")),
            planned({"p": [{"devices": [UUID], "mig": {"1g.5gb": 7}}, {}]}, a=pool("p")),
            "GPUs must be idle",
            "pool a",
        ),
        (
            planned({"p": {}}, a=pool("p")),
            planned({"p": {}}, a=pool("p", select={"pool": "b"})),
            "new pods only",
            "pool a",
        ),
    ],
)
def test_judges_gpus_that_the_plan_does_not_show(
    before: Plan, after: Plan, level: str, nodes: str
) -> None:
    result = verdict(diff(before, after))
    assert (result.level, result.unpredicted, result.gpus) == (level, (nodes,), 0)


def test_does_not_count_predicted_claims_twice() -> None:
    sides = (planned({"p": {"claims": {"shares": {"max": n}}}}, a=pool("p", 3)) for n in (16, 8))
    result = verdict(diff(*sides))
    assert (result.level, result.nodes, result.unpredicted) == ("new pods only", 3, ())


def test_judges_a_narrower_selector_by_the_nodes_that_leave() -> None:
    narrower = {"pool": "a", "rack": "1"}
    sides = [planned({"p": {}}, a=pool("p", select=select)) for select in ({"pool": "a"}, narrower)]
    assert verdict(diff(*sides)).level == "new pods only"
    assert verdict(diff(*reversed(sides))).level == "new pods only"


def test_judges_a_pool_without_hardware_beside_a_default_pool_with_it() -> None:
    profiles = {"whole": {}, "seven": {"mig": {"1g.5gb": 7}}}
    default = {**pool("whole", 3), "select": None}
    sides = [planned(profiles, d=default), planned(profiles, d=default, c={"profile": "seven"})]
    for both, name in ((sides, "pool c"), (sides[::-1], "pool d")):
        result = verdict(diff(*both))
        assert (result.level, result.unpredicted) == ("GPUs must be idle", (name,))


def test_judges_an_override_with_a_rule_by_uuid_that_comes() -> None:
    profiles = {"whole": {}, "one": [{"devices": [UUID], "mig": {"1g.5gb": 7}}, {}]}
    before = planned(profiles, a=pool("whole", 2))
    result = verdict(diff(before, planned(profiles, a=pool("whole", 2, overrides={"n1": "one"}))))
    assert (result.level, result.unpredicted) == ("GPUs must be idle", ("pool a",))


@pytest.mark.parametrize("count", [1, 3])
def test_counts_a_node_that_gets_an_override_once(count: int) -> None:
    """The prediction shows it on both sides: among its pool's nodes, and by its name."""
    profiles = {"whole": {}, "seven": {"mig": {"1g.5gb": 7}}}
    sides = [
        planned(profiles, a=pool("whole", count)),
        planned(profiles, a=pool("whole", count, overrides={"n1": "seven"})),
    ]
    for both in (sides, sides[::-1]):
        result = verdict(diff(*both))
        assert (result.nodes, result.pools, result.unpredicted) == (1, ("a",), ())


def test_judges_each_rule_of_a_pool_by_what_it_was() -> None:
    sliced = [
        [{"devices": [0], "mig": {"1g.5gb": 7}}, {"timeSlicing": {"replicas": n}}] for n in (2, 4)
    ]
    assert verdict(diff(*(of_profiles(p=rules) for rules in sliced))).level == "new pods only"


def test_judges_a_pool_of_no_nodes_as_harmless() -> None:
    profiles = {"whole": {}, "seven": {"mig": {"1g.5gb": 7}}}
    default = {**pool("whole", 3), "select": None}
    sides = [planned(profiles, d=default), planned(profiles, d=default, c=pool("seven", 0))]
    for both in (sides, sides[::-1]):
        difference = diff(*both)
        assert (difference.changes, verdict(difference).level) == ((), "none")


def test_follows_a_node_with_an_override_into_the_default_pool() -> None:
    profiles = {"whole": {}, "seven": {"mig": {"1g.5gb": 7}}}
    default = {**pool("whole", 3), "select": None}
    before = planned(profiles, d=default, c=pool("whole", 2, overrides={"n7": "seven"}))
    result = verdict(diff(before, planned(profiles, d=default)))
    assert (result.level, result.unpredicted) == ("GPUs must be idle", ("pool d",))


def test_judges_rules_for_gpus_that_no_node_has_as_harmless() -> None:
    shared = {"devices": [0, 1, 2, 3], "timeSlicing": {"replicas": 2}}
    profiles = [[shared], [shared, {"timeSlicing": {"replicas": 2, "renameByDefault": False}}]]
    difference = diff(*(planned({"p": profile}, a=pool("p")) for profile in profiles))
    assert difference.settings
    assert verdict(difference).level == "none"


def test_ends_clients_of_mps_if_the_agents_restart() -> None:
    restart = ObjectChanges(restarted=("DaemonSet divvy-agent",))
    mps = planned({"p": {"mps": {"replicas": 4}}}, a=pool("p"))
    result = verdict(diff(mps, mps, restart))
    assert (result.level, result.ends_clients, result.severity) == (
        "none",
        True,
        "GPUs must be idle",
    )
    assert not verdict(diff(BEFORE, BEFORE, restart)).ends_clients
    assert not verdict(diff(mps, mps, ObjectChanges(restarted=("Deployment x",)))).ends_clients


def test_puts_the_most_disruptive_change_and_stack_first() -> None:
    mild = diff(BEFORE, planned(PROFILES, a=pool("more", 3), b=pool("whole", 2), c=pool("whole")))
    harsh = diff(BEFORE, planned(PROFILES, a=pool("more", 3), b=pool("whole", 2), c=pool("seven")))
    assert [change.pool for change in harsh.changes] == ["c", "a"]
    review = Review((mild, diff(BEFORE, BEFORE), harsh), (), {})
    assert review.changed == (harsh, mild)
    assert review.unchanged == ("test",)
    assert Review((diff(BEFORE, BEFORE),), ("gone",), {})
    assert not Review((diff(BEFORE, BEFORE),), (), {})
