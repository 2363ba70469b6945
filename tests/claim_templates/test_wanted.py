"""What is to be done about templates, from what is known of pods, slices and templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.claim_templates.offered import OfferedShares, Share
from divvy.claim_templates.template import template_of
from divvy.claim_templates.wanted import Key, Step, Templates
from divvy.model.claim_names import SizedRequest

SIZED, PART, FOREIGN = Key("a", "divvy-1x10m"), Key("a", "divvy-1x50p"), Key("a", "divvy-mine")
SHARE = frozenset({Share(1000, "x", None)})
LARGER = frozenset({Share(2000, "x", None)})
SPEC = template_of(SizedRequest(1, 10, "m"), {})
UNUSED = 60.0


@pytest.fixture
def templates() -> Templates:
    known = Templates(UNUSED, OfferedShares(UNUSED))
    known.complete = True
    return known


def done(templates: Templates, now: float) -> list[Step]:
    """Take the steps that are due, one after the other, as the API would take them."""
    steps = []
    while (step := templates.next_step(now)) is not None:
        steps.append(step)
        templates.template(step.key, step.create)
        templates.finished(step.key)
    return steps


def test_creates_a_pods_template_once(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.waiting() == [SIZED]
    assert done(templates, 0) == [Step(SIZED, delete=False, create=SPEC)]
    templates.pod("2", frozenset({SIZED}))
    assert done(templates, 1) == []
    assert templates.waiting() == []


def test_leaves_names_alone_that_are_not_divvys(templates: Templates) -> None:
    templates.pod("1", frozenset({FOREIGN}))
    templates.template(FOREIGN, {"spec": {}})
    assert done(templates, 0) == []
    templates.pod("1", frozenset())
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []
    assert templates.live == 0


def test_deletes_no_template_before_everything_is_listed(templates: Templates) -> None:
    templates.complete = False
    templates.template(PART, {"spec": {}})
    templates.template(SIZED._replace(namespace="b"), {"spec": {}})
    templates.pod("1", frozenset({SIZED}))
    assert [step.key for step in done(templates, 0)] == [SIZED]
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []


def test_deletes_what_no_pod_names_after_a_while(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    done(templates, 0)
    templates.pod("1", frozenset())
    assert done(templates, 1) == []
    templates.look_again()
    assert done(templates, UNUSED) == []
    templates.look_again()
    assert done(templates, 1 + UNUSED) == [Step(SIZED, delete=True, create=None)]
    templates.look_again()
    assert done(templates, 2 + UNUSED) == []


def test_keeps_the_template_of_a_pod_that_comes_meanwhile(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    done(templates, 0)
    templates.pod("1", frozenset())
    done(templates, 1)
    templates.pod("2", frozenset({SIZED}))
    done(templates, UNUSED)
    templates.pod("2", frozenset())
    done(templates, UNUSED + 1)
    templates.look_again()
    assert done(templates, UNUSED + 2) == []


def test_recreates_a_template_that_somebody_deletes(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    done(templates, 0)
    templates.template(SIZED, None)
    assert done(templates, 1) == [Step(SIZED, delete=False, create=SPEC)]


def test_replaces_a_template_with_foreign_content(templates: Templates) -> None:
    templates.template(SIZED, {"spec": {"devices": {}}})
    assert done(templates, 0) == [Step(SIZED, delete=True, create=SPEC)]


def test_keeps_a_template_to_which_the_api_server_adds_defaults(
    templates: Templates,
) -> None:
    assert SPEC is not None
    added = {**SPEC, "metadata": {"labels": {"added": "by-a-policy"}}}
    templates.pod("1", frozenset({SIZED}))
    step = templates.next_step(0)
    assert step is not None
    assert step.create is not None
    templates.created(SIZED, step.create, added)
    templates.finished(SIZED)
    templates.template(SIZED, added)  # the watch tells it, too
    assert done(templates, 1) == []
    templates.template(SIZED, {"spec": {"devices": {}}})
    assert done(templates, 2) == [Step(SIZED, delete=True, create=SPEC)]


def test_waits_with_a_percentage_for_the_first_gpu(templates: Templates) -> None:
    templates.pod("1", frozenset({PART}))
    assert done(templates, 0) == []
    assert templates.waiting() == [PART]
    templates.slice("s", SHARE, 1)
    (step,) = done(templates, 1)
    assert step.key == PART
    assert not step.delete


def test_recreates_a_percentage_when_sizes_have_changed(templates: Templates) -> None:
    templates.slices({"s": SHARE}, 0)
    templates.pod("1", frozenset({PART, SIZED}))
    done(templates, 0)
    templates.slice("t", SHARE, 1)
    assert done(templates, 1) == []
    templates.slice("t", LARGER, 2)
    (step,) = done(templates, 2)
    assert (step.key, step.delete) == (PART, True)
    assert step.create == template_of(SizedRequest(1, 50, "p"), dict.fromkeys([*SHARE, *LARGER], 1))


def test_keeps_a_percentage_when_no_gpu_is_left(templates: Templates) -> None:
    templates.slices({"s": SHARE}, 0)
    templates.pod("1", frozenset({PART}))
    done(templates, 0)
    templates.slices({}, 1)
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []


def test_serves_namespaces_in_turn(templates: Templates) -> None:
    for number in range(100):
        templates.pod(f"a{number}", frozenset({Key("a", f"divvy-1x{number + 1}m")}))
    templates.pod("b", frozenset({Key("b", "divvy-1x7m"), Key("b", "divvy-1x8m")}))
    templates.pod("c", frozenset({Key("c", "divvy-1x7m")}))
    order = [step.key.namespace for step in done(templates, 0)]
    assert "".join(order) == "abcab" + "a" * 98
    assert templates.waiting() == []


def test_takes_one_step_at_a_time_for_a_template(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.next_step(0) == Step(SIZED, delete=False, create=SPEC)
    templates.look_again()
    assert templates.next_step(0) is None
    templates.finished(SIZED)  # it has failed
    assert templates.next_step(0) == Step(SIZED, delete=False, create=SPEC)


def test_keeps_a_template_until_its_last_pod_has_gone(templates: Templates) -> None:
    for pods in ({"1", "2"}, {"2"}):
        templates.pods(dict.fromkeys(pods, frozenset({SIZED})))
        done(templates, 0)
        templates.look_again()
        assert done(templates, 10 * UNUSED) == []
    templates.pods({})
    done(templates, 0)
    templates.look_again()
    assert done(templates, UNUSED) == [Step(SIZED, delete=True, create=None)]


def test_replaces_what_it_knew_by_a_list(templates: Templates) -> None:
    templates.pod("gone", frozenset({SIZED}))
    templates.template(PART, {"spec": {}})
    templates.pods({"new": frozenset({PART})})
    templates.templates({})
    assert templates.waiting() == [PART]
    assert templates.live == 0


_KEYS = st.sampled_from([SIZED, PART, Key("b", "divvy-1x10m"), FOREIGN])
_EVENTS = st.lists(
    st.tuples(st.just("pod"), st.sampled_from("123"), st.frozensets(_KEYS, max_size=2))
    | st.tuples(st.just("template"), _KEYS, st.sampled_from([None, {"spec": {}}]))
    | st.tuples(st.just("slice"), st.sampled_from("st"), st.sampled_from([SHARE, LARGER]))
    | st.tuples(st.just("time"), st.floats(0, 100), st.none()),
    max_size=30,
)


@given(_EVENTS)
def test_converges_to_the_templates_of_pods_whatever_happens(events: Any) -> None:
    templates = Templates(UNUSED, OfferedShares(UNUSED))
    templates.complete = True
    templates.slice("first", SHARE, 0)
    now, pods, live = 0.0, {}, {}

    def work() -> None:
        for step in done(templates, now):
            live[step.key] = step.create

    for kind, what, value in events:
        if kind == "pod":
            pods[what] = value
            templates.pod(what, value)
        elif kind == "template":
            live[what] = value
            templates.template(what, value)
        elif kind == "slice":
            templates.slice(what, value, now)
        else:
            now += what
            templates.look_again()
        work()
    named = {key for keys in pods.values() for key in keys} - {FOREIGN}
    assert named <= {key for key, spec in live.items() if spec is not None}
    for _ in range(3):
        now += UNUSED + 1
        templates.look_again()
        work()
    kept = {key for key, spec in live.items() if spec is not None} - {FOREIGN}
    assert kept == named
    for key in kept & {SIZED}:
        assert live[key] == SPEC


def test_delays_the_retry_of_what_was_refused(templates: Templates) -> None:
    """All are looked at every few seconds: a server that refuses must not be asked as often."""
    templates.pod("1", frozenset({SIZED}))
    step = templates.next_step(0)
    assert step is not None
    templates.finished(SIZED, failed=True)
    for now in (5, 10, 25):
        templates.look_again()
        assert templates.next_step(now) is None
    templates.look_again([SIZED])
    assert templates.next_step(30) == step


def test_forgets_a_delayed_retry_when_no_pod_names_it(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.next_step(0) is not None
    templates.finished(SIZED, failed=True)
    templates.pod("1", frozenset())
    assert templates.next_step(1) is None
    templates.pod("2", frozenset({SIZED}))
    assert templates.next_step(2) == Step(SIZED, delete=False, create=SPEC)
