"""What the rules of a profile change beyond the prediction: no change is silent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from divvy.model import parse_cluster
from divvy.plan import Difference, diff, plan
from divvy.plan.review.verdict import verdict

U1, U2 = (f"GPU-{number * 8}-2222-3333-4444-555555555555" for number in ("1", "2"))
HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 2, "count": 1}


def shared(replicas: int, devices: Any = "all") -> dict[str, Any]:
    slicing = {"replicas": replicas, "resourceName": f"x{replicas}"}
    return {"devices": devices, "timeSlicing": slicing}


def compare(before: list[Any], after: list[Any], hardware: Any = None) -> Difference:
    def predicted(rules: list[Any]) -> Any:
        pool = {"profile": "p", **({"hardware": hardware} if hardware else {})}
        return plan(parse_cluster({"profiles": {"p": rules}, "pools": {"q": pool}}), "test")

    return diff(predicted(before), predicted(after))


def changes(before: list[Any], after: list[Any], hardware: Any = None) -> list[tuple[str, ...]]:
    settings = compare(before, after, hardware).settings
    return [
        (setting.path.removeprefix("pools.q.profile"), setting.before, setting.after)
        for setting in settings
    ]


def text(replicas: int) -> str:
    return f"timeSlicing.replicas {replicas}, timeSlicing.resourceName x{replicas}"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([shared(4)], [shared(6)], (text(4), text(6))),
        ([shared(4, [0])], [shared(4, [1])], (f"0: {text(4)}", f"1: {text(4)}")),
        ([shared(4, "A100*")], [{}], (f"A100*: {text(4)}", "whole GPUs")),
        (
            [shared(4, [0, U1]), shared(6)],
            [shared(4, [1, U2]), shared(6)],
            (f"{U1}, 0: {text(4)}; {text(6)}", f"{U2}, 1: {text(4)}; {text(6)}"),
        ),
    ],
)
def test_names_the_rules_of_both_sides(
    before: list[Any], after: list[Any], expected: tuple[str, str]
) -> None:
    assert changes(before, after) == [("", *expected)]


def test_shows_uuids_that_swap_beside_gpus_that_stay() -> None:
    """The prediction, which knows no UUID, shows the same devices before and after."""
    before = [shared(4, [0, U1]), shared(6, [1, U2])]
    after = [shared(4, [0, U2]), shared(6, [1, U1])]
    difference = compare(before, after, HARDWARE)
    assert not difference.changes
    assert len(difference.settings) == 1
    assert verdict(difference).level == "GPUs must be idle"


def test_repeats_nothing_that_the_prediction_shows() -> None:
    whole = {"devices": [0]}
    for before, after in (
        ([shared(4)], [shared(6)]),
        ([shared(4, [0])], [whole]),
        ([shared(4, "A100*"), shared(6, "T4*")], [shared(8, "A100*"), shared(6, "T4*")]),
    ):
        difference = compare(before, after, HARDWARE)
        assert difference.changes
        assert difference.settings == ()


_SELECTORS = st.sampled_from(["all", "A100*", "*40GB", "T4*", [0], [1], [0, 1], [U1], [U2]])
# A rule for all GPUs stands last, and once.
_RULES = st.lists(
    st.builds(shared, st.sampled_from([4, 6]), _SELECTORS),
    min_size=1,
    max_size=4,
    unique_by=lambda rule: str(rule["devices"]),
).map(lambda rules: sorted(rules, key=lambda rule: rule["devices"] == "all"))


@given(_RULES, _RULES)
def test_finds_no_change_only_if_every_gpu_is_decided_alike(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    if compare(before, after):
        return
    older, newer = (
        parse_cluster({"profiles": {"p": rules}, "pools": {"q": {"profile": "p"}}}).profiles["p"]
        for rules in (before, after)
    )
    for index in (0, 1, 7):
        for uuid in (U1, U2, ""):
            for model in (("NVIDIA A100-SXM4-40GB",), ("Tesla T4", "T4"), ("NVIDIA H100",)):
                matching = [
                    next(
                        (rule for rule in side.rules if rule.devices.takes(index, uuid, model)),
                        None,
                    )
                    for side in (older, newer)
                ]
                contents = [rule and rule.model_dump(exclude={"devices"}) for rule in matching]
                assert contents[0] == contents[1], (index, uuid, model)
