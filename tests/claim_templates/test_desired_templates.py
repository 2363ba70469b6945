"""What is to be done about templates, from what is known of pods, slices and templates."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.claim_templates.desired_templates import Key, Step, Templates, digest_of
from divvy.claim_templates.offered import OfferedShares, Share
from divvy.claim_templates.template import template_of
from divvy.model.claim_names import SizedRequest

SIZED, PART, FOREIGN = Key("a", "divvy-1x10m"), Key("a", "divvy-1x50p"), Key("a", "divvy-mine")
SHARE = frozenset({Share(1000, "x", None)})
LARGER = frozenset({Share(2000, "x", None)})
SPEC = template_of(SizedRequest(1, 10, "m"), {})
OTHER = digest_of({"spec": {}})
UNUSED = 60.0


@pytest.fixture
def templates() -> Templates:
    known = Templates(UNUSED, OfferedShares(UNUSED))
    known.complete = True
    return known


def done(templates: Templates, now: float) -> list[Step]:
    """Take the steps that are due, one after the other, as the API would take them."""
    steps = []
    while True:
        step = templates.next_step(now)
        if step is None and not templates.has_due:
            break
        if step is None:
            continue
        steps.append(step)
        templates.template(step.key, None if step.create is None else digest_of(step.create))
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
    templates.template(FOREIGN, OTHER)
    assert done(templates, 0) == []
    templates.pod("1", frozenset())
    templates.look_again()
    assert done(templates, 10 * UNUSED) == []
    assert templates.live == 0


def test_deletes_no_template_before_everything_is_listed(templates: Templates) -> None:
    templates.complete = False
    templates.template(PART, OTHER)
    templates.template(SIZED._replace(namespace="b"), OTHER)
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
    templates.template(SIZED, OTHER)
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
    templates.template(SIZED, digest_of(added))  # the watch tells it, too
    assert done(templates, 1) == []
    templates.template(SIZED, OTHER)
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
    templates.template(PART, OTHER)
    templates.pods({"new": frozenset({PART})})
    templates.templates({})
    assert templates.waiting() == [PART]
    assert templates.live == 0


_KEYS = st.sampled_from([SIZED, PART, Key("b", "divvy-1x10m"), FOREIGN])
_EVENTS = st.lists(
    st.tuples(st.just("pod"), st.sampled_from("123"), st.frozensets(_KEYS, max_size=2))
    | st.tuples(st.just("template"), _KEYS, st.sampled_from([None, OTHER]))
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


def flood(templates: Templates, pods: int, first: int = 0) -> None:
    """Have pods of one namespace name 64 templates each, as one tenant can."""
    for at in range(first, first + pods):
        names = (Key("flood", f"divvy-1x{at * 64 + number + 1}m") for number in range(64))
        templates.pod(f"f{at}", frozenset(names))


def test_serves_so_many_sizes_of_a_namespace_at_a_time(templates: Templates) -> None:
    flood(templates, 100)
    templates.pod("victim", frozenset({SIZED}))
    assert len(done(templates, 0)) == 256 + 1
    ((namespace, (pods, key)),) = templates.over().items()
    assert (namespace, pods, key.namespace) == ("flood", 96, "flood")
    assert templates.with_room() == []
    # A name that is in work costs the namespace nothing more.
    templates.pod("same", frozenset({Key("flood", "divvy-1x1m")}))
    assert templates.over()["flood"][0] == 96
    for at in range(2):
        templates.pod(f"f{at}", frozenset())
    templates.pod("same", frozenset())
    assert templates.with_room() == ["flood"]
    flood(templates, 96, first=4)  # told again
    assert templates.over()["flood"][0] == 94
    assert len(done(templates, 1)) == 128
    templates.pods({})
    assert templates.over() == {}


def test_keeps_so_many_templates_that_no_pod_names(templates: Templates) -> None:
    templates.pod("1", frozenset({SIZED}))
    for number in range(2000):
        spec = template_of(SizedRequest(1, number + 1, "m"), {})
        templates.template(Key("flood", f"divvy-1x{number + 1}m"), digest_of(spec or {}))
    deleted = [step for step in done(templates, 0) if step.delete]
    templates.look_again()
    deleted += [step for step in done(templates, 0) if step.delete]
    assert len(deleted) == 2000 - 256
    assert templates.live == 256 + 1


def test_keeps_little_of_each_pod_and_template() -> None:
    """1,000 pods of one tenant name 64,000 templates, each with long names of types."""
    templates = Templates(UNUSED, OfferedShares(UNUSED))
    types = ".".join(f"a{'x' * 10}{at:02}" for at in range(14))
    tracemalloc.start()
    for pod in range(1000):
        names = (f"divvy-1x{pod * 64 + at + 1}m.use.{types}" for at in range(64))
        templates.pod(f"uid-{pod}", frozenset(Key("flood", name) for name in names))
    done(templates, 0)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert templates.live == 256
    assert kept < 4 << 20


def test_looks_at_many_templates_in_slices(
    templates: Templates, monkeypatch: pytest.MonkeyPatch
) -> None:
    for namespace in range(20):
        for number in range(200):
            key = Key(f"n{namespace}", f"divvy-1x{number + 1}m")
            templates.template(key, digest_of(template_of(SizedRequest(1, number + 1, "m"), {})))
    looks = 0

    def counted(request: SizedRequest, offered: Any) -> Any:
        nonlocal looks
        looks += 1
        return template_of(request, offered)

    monkeypatch.setattr("divvy.claim_templates.desired_templates.template_of", counted)
    pieces = []
    while templates.has_due:
        looks = 0
        assert templates.next_step(0) is None
        pieces.append(looks)
    assert sum(pieces) == 4000
    assert max(pieces) <= 200
