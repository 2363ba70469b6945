"""The verdict on a diff: its worst disruption and what it concerns."""

from __future__ import annotations

from dataclasses import replace

from divvy.plan import diff
from divvy.plan.review import Review
from divvy.plan.verdict import Verdict, verdict
from tests.plan.stacks import planned, pool

PROFILES = {
    "whole": {},
    "shared": {"timeSlicing": {"replicas": 4}},
    "more": {"timeSlicing": {"replicas": 8}},
    "seven": {"mig": {"1g.5gb": 7}},
}
BEFORE = planned(PROFILES, a=pool("shared", 3), b=pool("whole", 2), c=pool("whole", 1))


def test_reports_no_disruption_for_equal_plans() -> None:
    assert verdict(diff(BEFORE, BEFORE)) == Verdict("none", 0, 0, (), "wait", ())


def test_counts_only_gpus_and_nodes_of_the_worst_level() -> None:
    after = planned(PROFILES, a=pool("more", 3), b=pool("seven", 2), c=pool("seven", 1))
    result = verdict(diff(BEFORE, replace(after, policy="evict")))
    assert (result.level, result.gpus, result.nodes) == ("GPUs must be idle", 12, 3)
    assert (result.pools, result.policy) == (("b", "c"), "evict")
    assert result.withdrawn == ("nvidia.com/gpu",)


def test_counts_the_nodes_that_leave() -> None:
    result = verdict(diff(BEFORE, planned(PROFILES, a=pool("shared", 3), b=pool("whole", 2))))
    assert (result.level, result.nodes, result.pools) == ("new pods only", 1, ("c",))


def test_puts_the_most_disruptive_change_and_stack_first() -> None:
    mild = diff(BEFORE, planned(PROFILES, a=pool("more", 3), b=pool("whole", 2), c=pool("whole")))
    harsh = diff(BEFORE, planned(PROFILES, a=pool("more", 3), b=pool("whole", 2), c=pool("seven")))
    assert [change.pool for change in harsh.changes] == ["c", "a"]
    review = Review((mild, diff(BEFORE, BEFORE), harsh), (), {})
    assert review.changed == (harsh, mild)
    assert review.unchanged == ("test",)
    assert Review((diff(BEFORE, BEFORE),), ("gone",), {})
    assert not Review((diff(BEFORE, BEFORE),), (), {})
