"""A policy as its file has it: the times at which evictions are allowed, and errors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from divvy.model import InvalidValue
from divvy.model.stack_policy import Policy, RuleName, parse_policy

# 2026-11-28 is a Saturday.
SATURDAY, SUNDAY, MONDAY = 28, 29, 30


def at(day: int, clock: str) -> datetime:
    hour, minute = map(int, clock.split(":"))
    return datetime(2026, 11, day, hour, minute, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "time", "included"),
    [
        ("Sat 22:00-04:00", at(SATURDAY, "21:59"), False),
        ("Sat 22:00-04:00", at(SATURDAY, "22:00"), True),
        ("Sat 22:00-04:00", at(SUNDAY, "03:59"), True),
        ("Sat 22:00-04:00", at(SUNDAY, "04:00"), False),
        ("Sat 22:00-04:00", at(SUNDAY, "23:00"), False),
        ("Sun 22:00-04:00", at(MONDAY, "01:00"), True),
        ("Sun 22:00-04:00", at(SUNDAY, "01:00"), False),
        ("Sat 10:00-12:00", at(SATURDAY, "11:00"), True),
        ("Sat 10:00-12:00", at(SATURDAY, "12:00"), False),
        ("Sat 00:00-00:00", at(SATURDAY, "23:59"), True),
        ("Sat 00:00-00:00", at(SUNDAY, "00:00"), False),
    ],
)
def test_includes_times_of_a_window(window: str, time: datetime, *, included: bool) -> None:
    (parsed,) = parse_policy({"evictions": [window]}).evictions or ()
    assert parsed.includes(time) is included


def test_reads_never_as_no_window() -> None:
    assert parse_policy({"evictions": "never"}).evictions == ()
    assert parse_policy({}).evictions is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"evictions": "soon"}, "is 'soon'; never or a list of times is expected"),
        ({"evictions": ["Sat 22:00-23:00", "Sat 24:00-25:00"]}, "evictions[1]: is 'Sat 24:00-25"),
        ({"evictions": None}, "evictions: is empty"),
        ({"memory": None}, "memory: is empty"),
        ({"faults": None, "sharing": None}, "sharing: is empty"),
        ({"maxContainersPerDevice": None}, "maxContainersPerDevice: is empty"),
        ({"evictions": ["Saturday 22:00-23:00"]}, "a weekday and a time in UTC"),
        ({"evictions": ["Sat 22:00-23:00\n"]}, "a weekday and a time in UTC"),
        ({"evictons": "never"}, "did you mean evictions?"),
        ({"memory": "none"}, "exclusive, hard, limited, prevented or watched is expected"),
        ({"maxContainersPerDevice": 0}, "maxContainersPerDevice"),
        ({"advisory": ["memroy"]}, "advisory[0]: is 'memroy'"),
        ({"advisory": None}, "advisory: is empty"),
        (
            {"memory": "hard", "advisory": ["memory", "sharing", "faults"]},
            "policy: has sharing, faults in `advisory`, and no such rule",
        ),
        ([], "is []; a mapping is expected"),
    ],
)
def test_refuses_what_no_policy_has(value: object, reason: str) -> None:
    with pytest.raises(InvalidValue) as invalid:
        parse_policy(value)
    assert reason in str(invalid.value)


def test_has_a_name_for_every_rule() -> None:
    keys = {field.alias for field in Policy.model_fields.values()}
    assert {*get_args(RuleName)} == keys - {"advisory"}
