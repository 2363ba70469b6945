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
    found = Templates(UNUSED, OfferedShares(UNUSED))
    found.complete = True
    return found


def done(templates: Templates, now: float) -> list[Step]:
    """Take the steps that are due, one after the other, as the API would take them."""
    steps = []
    while (step := templates.next_step(now)) is not None:
        steps.append(step)
        templates.template(step.key, step.create)
        templates.finished(step.key)
    return steps


def test_a_pods_template_is_made_once(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.waiting() == [SIZED]
    assert done(templates, 0) == [Step(SIZED, delete=False, create=SPEC)]
    templates.pod("2", frozenset({SIZED}))
    assert done(templates, 1) == []
    assert templates.waiting() == []


def test_a_name_that_is_none_of_ours_is_left_alone(templates: Templates) -> None:
    templates.pod("1", frozenset({FOREIGN}))
    templates.template(FOREIGN, {"spec": {}})
    assert done(templates, 0) == []
    templates.pod("1", frozenset())
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []
    assert templates.live == 0


def test_before_all_is_known_templates_are_made_and_none_is_deleted(templates: Templates) -> None:
    templates.complete = False
    templates.template(PART, {"spec": {}})
    templates.template(SIZED._replace(namespace="b"), {"spec": {}})
    templates.pod("1", frozenset({SIZED}))
    assert [step.key for step in done(templates, 0)] == [SIZED]
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []


def test_what_no_pod_names_goes_after_a_while(templates: Templates) -> None:
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


def test_a_pod_that_comes_meanwhile_keeps_its_template(templates: Templates) -> None:
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


def test_a_template_that_somebody_deletes_comes_back(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    done(templates, 0)
    templates.template(SIZED, None)
    assert done(templates, 1) == [Step(SIZED, delete=False, create=SPEC)]


def test_a_template_that_is_not_ours_by_what_it_says_is_replaced(templates: Templates) -> None:
    templates.template(SIZED, {"spec": {"devices": {}}})
    assert done(templates, 0) == [Step(SIZED, delete=True, create=SPEC)]


def test_what_the_api_server_adds_to_a_template_is_no_reason_to_make_it_again(
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


def test_a_percentage_waits_for_the_first_gpu(templates: Templates) -> None:
    templates.pod("1", frozenset({PART}))
    assert done(templates, 0) == []
    assert templates.waiting() == [PART]
    templates.slice("s", SHARE, 1)
    (step,) = done(templates, 1)
    assert step.key == PART
    assert not step.delete


def test_a_percentage_is_made_again_when_sizes_have_changed(templates: Templates) -> None:
    templates.slices({"s": SHARE}, 0)
    templates.pod("1", frozenset({PART, SIZED}))
    done(templates, 0)
    templates.slice("t", SHARE, 1)
    assert done(templates, 1) == []
    templates.slice("t", LARGER, 2)
    (step,) = done(templates, 2)
    assert (step.key, step.delete) == (PART, True)
    assert step.create == template_of(SizedRequest(1, 50, "p"), dict.fromkeys([*SHARE, *LARGER], 1))


def test_a_percentage_stays_when_no_gpu_is_left(templates: Templates) -> None:
    templates.slices({"s": SHARE}, 0)
    templates.pod("1", frozenset({PART}))
    done(templates, 0)
    templates.slices({}, 1)
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []


def test_namespaces_take_turns(templates: Templates) -> None:
    for number in range(100):
        templates.pod(f"a{number}", frozenset({Key("a", f"divvy-1x{number + 1}m")}))
    templates.pod("b", frozenset({Key("b", "divvy-1x7m"), Key("b", "divvy-1x8m")}))
    templates.pod("c", frozenset({Key("c", "divvy-1x7m")}))
    order = [step.key.namespace for step in done(templates, 0)]
    assert "".join(order) == "abcab" + "a" * 98
    assert templates.waiting() == []


def test_a_template_has_one_step_at_a_time(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.next_step(0) == Step(SIZED, delete=False, create=SPEC)
    templates.look_again()
    assert templates.next_step(0) is None
    templates.finished(SIZED)  # it has failed
    assert templates.next_step(0) == Step(SIZED, delete=False, create=SPEC)


def test_a_template_is_named_until_the_last_pod_has_gone(templates: Templates) -> None:
    for pods in ({"1", "2"}, {"2"}):
        templates.pods(dict.fromkeys(pods, frozenset({SIZED})))
        done(templates, 0)
        templates.look_again()
        assert done(templates, 10 * UNUSED) == []
    templates.pods({})
    done(templates, 0)
    templates.look_again()
    assert done(templates, UNUSED) == [Step(SIZED, delete=True, create=None)]


def test_lists_replace_what_was_known(templates: Templates) -> None:
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
def test_whatever_happens_pods_have_their_templates_and_nothing_else_stays(events: Any) -> None:
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


def test_rests_what_was_refused(templates: Templates) -> None:
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


def test_forgets_what_rests_when_nobody_names_it(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    assert templates.next_step(0) is not None
    templates.finished(SIZED, failed=True)
    templates.pod("1", frozenset())
    assert templates.next_step(1) is None
    templates.pod("2", frozenset({SIZED}))
    assert templates.next_step(2) == Step(SIZED, delete=False, create=SPEC)
