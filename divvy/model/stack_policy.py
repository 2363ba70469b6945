"""``Policy``: the schema of an administrator's policy for stack files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from divvy.model.problems import value_text
from divvy.model.stack_part import Count, StackPart
from divvy.model.validation import read

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_CLOCK = r"([01]\d|2[0-3]):([0-5]\d)"
_WINDOW = rf"({'|'.join(_DAYS)}) {_CLOCK}-{_CLOCK}"
_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Window:
    """A time of every week, in UTC; one that ends before it begins ends on the next day."""

    text: str
    weekday: int
    begins: timedelta
    ends: timedelta

    def includes(self, time: datetime) -> bool:
        """Return whether a time in UTC is within the window."""
        midnight = time.replace(hour=0, minute=0, second=0, microsecond=0)
        since = time - midnight + _DAY * ((time.weekday() - self.weekday) % 7)
        length = (self.ends - self.begins) % _DAY or _DAY
        return (since - self.begins) % (7 * _DAY) < length


def _given(value: object) -> object:
    if value is None:
        raise ValueError("is empty; write a value, or leave the key out")
    return value


def _windows(value: object) -> object:
    if _given(value) == "never":
        return ()
    if not isinstance(value, list):
        reason = f"is {value_text(value)}; never or a list of times is expected"
        raise ValueError(reason)  # noqa: TRY004 (pydantic reports no other)
    return tuple(value)


def _window(value: object) -> Window:
    match = re.fullmatch(_WINDOW, value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"is {value_text(value)}; a weekday and a time in UTC are expected: Sat 22:00-04:00"
        )
    day, *clock = match.groups()
    hours, minutes, end_hours, end_minutes = map(int, clock)
    return Window(
        match[0],
        _DAYS.index(day),
        timedelta(hours=hours, minutes=minutes),
        timedelta(hours=end_hours, minutes=end_minutes),
    )


_Given = BeforeValidator(_given)
RuleName = Literal[
    "memory",
    "faults",
    "sharing",
    "maxContainersPerDevice",
    "oversubscription",
    "evictions",
]


class Policy(StackPart):
    """What stack files may do; what is left out is allowed."""

    memory: Annotated[
        Literal["exclusive", "hard", "limited", "prevented", "watched"] | None, _Given
    ] = None
    """The weakest promise of memory that a device may have."""
    faults: Annotated[Literal["isolated"] | None, _Given] = None
    """A fault of one container may end no other: whole GPUs and undivided MIG devices."""
    sharing: Annotated[Literal["tenants-apart", "none"] | None, _Given] = None
    """tenants-apart: GPUs are shared by claims with `tenants` alone; none: not at all."""
    max_containers_per_device: Annotated[Count | None, _Given] = None
    """Maximum number of containers per GPU or MIG device."""
    oversubscription: Annotated[bool, Field(strict=True)] = True
    """Whether limits of memory may add up to more than the device has."""
    evictions: Annotated[
        tuple[Annotated[InstanceOf[Window], BeforeValidator(_window)], ...] | None,
        BeforeValidator(_windows),
    ] = None
    """When a change may evict pods that hold a GPU (`change.policy: evict`): never, or a list."""
    advisory: Annotated[tuple[RuleName, ...], _Given] = ()
    """Rules that only warn."""

    @model_validator(mode="after")
    def _has_its_advisory_rules(self) -> Policy:
        rules = self.rules()
        if missing := [name for name in self.advisory if name not in rules]:
            raise ValueError(
                f"has {', '.join(missing)} in `advisory`, and no such rule; write what is allowed, "
                "or take it out of the list"
            )
        return self

    def rules(self) -> tuple[RuleName, ...]:
        """Return the names of the rules that the policy has, in their own order."""
        fields = type(self).model_fields
        given = {fields[name].alias for name in self.model_fields_set}
        return tuple(name for name in get_args(RuleName) if name in given)


def parse_policy(value: object) -> Policy:
    """Return a policy; raises InvalidValue with every error."""
    return read(Policy, value, "policy")
