"""Rules that decide alike are one: the canonical form, and the diff that stands on it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.model import Rule, gpu_models, parse_cluster
from divvy.plan import diff, plan
from divvy.plan.canonical_rules import canonical_rules
from divvy.plan.model_globs import can_meet, canonical_glob, lies_within
from divvy.plan.profiles import Follower, follower_changes

U1 = "GPU-11111111-1111-1111-1111-111111111111"
U2 = "GPU-22222222-2222-2222-2222-222222222222"
HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 2, "count": 2}


def shared(replicas: int, devices: Any = "all") -> dict[str, Any]:
    sharing = {"replicas": replicas, "resourceName": f"x{replicas}"}
    return {"devices": devices, "timeSlicing": sharing}


def said(replicas: int) -> str:
    return f"timeSlicing.replicas {replicas}, timeSlicing.resourceName x{replicas}"


def whole(devices: Any = "all") -> dict[str, Any]:
    return {"devices": devices}


def read(rules: list[dict[str, Any]]) -> tuple[Rule, ...]:
    return tuple(Rule.model_validate(rule) for rule in rules)


def compare(
    before: list[dict[str, Any]], after: list[dict[str, Any]], hardware: dict[str, Any] | None
) -> Any:
    def planned(rules: list[dict[str, Any]]) -> Any:
        pool: dict[str, Any] = {"select": {"role": "a"}, "profile": "p"}
        if hardware is not None:
            pool["hardware"] = hardware
        return plan(parse_cluster({"profiles": {"p": rules}, "pools": {"q": pool}}), "s")

    return diff(planned(before), planned(after))


SAME = {
    "indices in another order": ([shared(4, [0, 1])], [shared(4, [1, 0])]),
    "one rule or two": ([shared(4, [0, 1])], [shared(4, [0]), shared(4, [1])]),
    "an index and a UUID, together or not": (
        [shared(4, [0, U1])],
        [shared(4, [U1]), shared(4, [0])],
    ),
    "indices that change places": (
        [shared(4, [0]), shared(6, [1])],
        [shared(6, [1]), shared(4, [0])],
    ),
    "UUIDs that change places": (
        [shared(4, [U1]), shared(6, [U2])],
        [shared(6, [U2]), shared(4, [U1])],
    ),
    "models that change places": (
        [shared(4, "T4*"), shared(6, "A100*")],
        [shared(6, "A100*"), shared(4, "T4*")],
    ),
    "a model in other letter case": ([shared(4, "A100*")], [shared(4, "a100*")]),
    "a star for all": ([shared(4, "*")], [shared(4)]),
    "two stars for one": ([shared(4, "A100**")], [shared(4, "A100*")]),
    "a set in another order": ([shared(4, "A[13]00*")], [shared(4, "A[31]00*")]),
    "a range for a set": ([shared(4, "A[123]0")], [shared(4, "A[1-3]0")]),
    "an index again": ([shared(4, [0]), shared(6, [0]), shared(8)], [shared(4, [0]), shared(8)]),
    "a UUID again": ([shared(4, [U1]), shared(6, [U1])], [shared(4, [U1])]),
    "a model again": ([shared(4, "T4*"), shared(6, "t4*")], [shared(4, "T4*")]),
    "a model within an earlier one": (
        [shared(4, "A100*"), shared(6, "A100*40GB")],
        [shared(4, "A100*")],
    ),
    "what the rule for all says as well": ([shared(4, [0]), shared(4)], [shared(4)]),
    "whole GPUs, said at the end": ([shared(4, [0]), whole()], [shared(4, [0])]),
    "whole GPUs, said of one": ([whole([0])], [whole()]),
    "one content, in another order": (
        [shared(4, "A100*"), shared(4, [0])],
        [shared(4, [0]), shared(4, "A100*")],
    ),
}

OTHERS = {
    "UUIDs that change places beside indices": (
        [shared(4, [0, U1]), shared(6, [1, U2])],
        [shared(4, [0, U2]), shared(6, [1, U1])],
        {U1: (4, 6), U2: (6, 4)},
    ),
    "UUIDs that change their contents": (
        [shared(4, [U1]), whole([U2]), shared(6)],
        [whole([U1]), shared(4, [U2]), shared(6)],
        {U1: (said(4), "whole GPUs"), U2: ("whole GPUs", said(4))},
    ),
    "a UUID that another takes the place of": (
        [shared(4, [U1]), shared(6)],
        [shared(4, [U2]), shared(6)],
        {U1: (4, 6), U2: (6, 4)},
    ),
    "a UUID before or after an index": (
        [shared(4, [U1]), shared(6, [5])],
        [shared(6, [5]), shared(4, [U1])],
        {f"{U1} and 5": (said(4), said(6))},
    ),
    "a UUID before or after a model": (
        [shared(4, [U1]), shared(6, "T4*")],
        [shared(6, "T4*"), shared(4, [U1])],
        {f"{U1} and t4*": (said(4), said(6))},
    ),
    "models that meet in a name": (
        [shared(4, "T4*"), shared(6, "*-X")],
        [shared(6, "*-X"), shared(4, "T4*")],
        {"*-x and t4*": (said(4), said(6))},
    ),
    "models that meet in a GPU of two names": (
        [shared(4, "T4*"), shared(6, "Tesla*")],
        [shared(6, "Tesla*"), shared(4, "T4*")],
        {"t4* and tesla*": (said(4), said(6))},
    ),
    "a UUID that indices decide for": (
        [shared(4, [U1]), shared(6, [5]), shared(8)],
        [shared(6, [5]), shared(8)],
        {U1: (said(4), "as the other rules say")},
    ),
    "a set that is not read": (
        [shared(4, "A[a-]0*"), shared(6, "B*")],
        [shared(6, "B*"), shared(4, "A[a-]0*")],
        {"a[a-]0* and b*": (said(4), said(6))},
    ),
}


@pytest.mark.parametrize(("before", "after"), SAME.values(), ids=SAME)
def test_what_decides_alike_is_one(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    assert canonical_rules(read(before)) == canonical_rules(read(after))
    for hardware in (None, HARDWARE):
        assert not compare(before, after, hardware)
        assert not compare(after, before, hardware)


def test_rules_after_the_one_for_all_are_left_out() -> None:
    assert canonical_rules(read([shared(4), shared(6, [0])])) == read([shared(4)])


@pytest.mark.parametrize(("before", "after", "changes"), OTHERS.values(), ids=OTHERS)
def test_what_decides_otherwise_names_the_gpus_before_and_after(
    before: list[dict[str, Any]], after: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    expected = []
    for name, (older, newer) in changes.items():
        path = f"pools.q.profile[{name}]"
        if isinstance(older, int):
            expected += [
                (f"{path}.timeSlicing.replicas", f"{older}", f"{newer}"),
                (f"{path}.timeSlicing.resourceName", f"x{older}", f"x{newer}"),
            ]
        else:
            expected.append((path, older, newer))
    found = compare(before, after, None).settings
    assert sorted((one.path, one.before, one.after) for one in found) == sorted(expected)
    assert compare(after, before, None)


def test_uuids_that_change_places_beside_gpus_that_stay_show() -> None:
    """The prediction, which knows no UUID, shows the same devices before and after."""
    before = [shared(4, [0, U1]), {**shared(6, [1, U2]), "mig": {"3g.20gb": 2}}]
    after = [shared(4, [0, U2]), {**shared(6, [1, U1]), "mig": {"3g.20gb": 2}}]
    difference = compare(before, after, HARDWARE)
    assert not difference.changes
    four, six = said(4), f"mig.layout.3g.20gb 2, {said(6)}"
    assert [(one.path, one.before, one.after) for one in difference.settings] == [
        (f"pools.q.profile[{U1}]", four, six),
        (f"pools.q.profile[{U2}]", six, four),
    ]


def test_what_the_prediction_shows_is_not_said_again() -> None:
    one, other = [shared(4, [0]), whole([1])], [whole([0]), shared(4, [1])]
    for before, after in ((one, other), ([shared(4)], [shared(6)])):
        difference = compare(before, after, HARDWARE)
        assert difference.changes
        assert difference.settings == ()


def test_models_that_change_places_show_once_on_gpus_of_both() -> None:
    before = [shared(4, "A100*"), shared(6, "*40GB")]
    difference = compare(before, before[::-1], HARDWARE)
    assert len(difference.changes) == 1
    assert difference.settings == ()


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ("A100*", "H100*", False),
        ("A100*", "*80GB", True),
        ("A?00", "A100", True),
        ("A[!1]00", "A100", False),
        ("A[!1]00", "A[!2]00", True),
        ("A100", "A1000", False),
        ("A*0", "A*1", False),
        ("*a*", "*b*", True),
        # Two names of one GPU.
        ("NVIDIA*", "A100*", True),
    ],
)
def test_globs_meet_where_a_gpu_has_a_name_for_each(first: str, second: str, meet: bool) -> None:
    assert can_meet(first, second) is can_meet(second, first) is meet


def test_the_form_of_a_glob_names_every_set_once() -> None:
    assert [canonical_glob(text) for text in ("A*?**", "[b][a-c]x", "a[[]b[", "[!B]", "[z-a]")] == [
        "a?*",
        "b[abc]x",
        "a[[]b[[]",
        "[!b]",
        "[z-a]",
    ]


NAMES = ("t4", "a100-sxm4-40gb", "a100-sxm4-80gb", "a", "ab", "b", "ba", "aab", "*", "[", "abc")
GLOBS = st.one_of(
    st.sampled_from(
        ("A100*", "a100*", "*40GB", "NVIDIA*", "T4", "Tesla*", "*", "[!ab]*", "A[1-3]*")
    ),
    st.text("ab*?[]!-", min_size=1, max_size=5),
)
CONTENTS = ({}, {"timeSlicing": {"replicas": 2}}, {"timeSlicing": {"replicas": 3}})
DEVICES = st.one_of(
    st.just("all"),
    GLOBS,
    st.lists(st.sampled_from((0, 1, 2, U1, U2)), min_size=1, max_size=3),
)
RULES = st.lists(
    st.builds(
        lambda devices, content: {"devices": devices, **content}, DEVICES, st.sampled_from(CONTENTS)
    ),
    min_size=1,
    max_size=6,
)
KNOWN = [(product, model.name) for model in gpu_models().values() for product in model.products]
GPUS = st.lists(
    st.tuples(
        st.sampled_from((None, 0, 1, 2, 3)),
        st.sampled_from((U1, U2, "GPU-x")),
        st.one_of(
            st.sampled_from(KNOWN),
            st.tuples(st.sampled_from(NAMES)),
            st.tuples(st.text("ab[", max_size=4)),
        ),
    ),
    min_size=1,
    max_size=20,
)


def decided(rules: tuple[Rule, ...], gpu: tuple[int | None, str, tuple[str, ...]]) -> Any:
    """Say what a GPU becomes, by the words of the documentation: the first rule that selects it."""
    index, uuid, names = gpu
    for rule in rules:
        choice = rule.devices
        by_model = choice.model is not None and any(
            fnmatchcase(name.lower(), choice.model.lower()) for name in names
        )
        if not (choice.indices or choice.uuids or choice.model):
            return rule.mig, rule.time_slicing
        if index in choice.indices or uuid in choice.uuids or by_model:
            return rule.mig, rule.time_slicing
    return None, None


many = settings(max_examples=400, deadline=None)


@many
@given(RULES, GPUS)
def test_the_form_decides_as_the_rules_do(rules: list[dict[str, Any]], gpus: list[Any]) -> None:
    before = read(rules)
    after = canonical_rules(before)
    for gpu in gpus:
        assert decided(before, gpu) == decided(after, gpu), (gpu, after)


@many
@given(RULES)
def test_the_form_is_its_own_form(rules: list[dict[str, Any]]) -> None:
    once = canonical_rules(read(rules))
    assert canonical_rules(once) == once


@many
@given(RULES, RULES, GPUS, st.booleans())
def test_no_change_means_that_every_gpu_is_decided_alike(
    first: list[dict[str, Any]], second: list[dict[str, Any]], gpus: list[Any], reorder: bool
) -> None:
    """Of two files; of one and the same whose rules change places."""
    after = first[::-1] if reorder else second
    older, newer = ({"p": Follower(canonical_rules(read(rules)), ())} for rules in (first, after))
    if not follower_changes(older, newer, frozenset()):
        for gpu in gpus:
            assert decided(read(first), gpu) == decided(read(after), gpu), gpu


@many
@given(
    st.text("ab*?[]!-", max_size=6), st.text("ab*?[]!-", max_size=6), st.text("abc[!", max_size=5)
)
def test_globs_are_what_fnmatch_takes_them_for(first: str, second: str, name: str) -> None:
    takes = [fnmatchcase(name, glob) for glob in (first, second)]
    assert fnmatchcase(name, canonical_glob(first)) == takes[0]
    if all(takes):
        assert can_meet(first, second)
    if takes[0] and lies_within(first, second):
        assert takes[1]
