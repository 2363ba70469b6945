"""The shape of an earlier run's report: whoever handed it on may have changed it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

# Far above the report of any fleet.
_MAX_VALUES = 50_000_000


class _Part(BaseModel):
    model_config = ConfigDict(strict=True)


class _Node(_Part):
    name: str


class _Environment(_Part):
    stack: Any
    nodes: list[_Node]
    divvy: dict[str, Any] | None = None
    stackFile: dict[str, Any] | None = None  # noqa: N815


class _Check(_Part):
    id: str
    case: str
    title: str
    level: Literal["MUST", "SHOULD"]
    status: Literal["passed", "failed", "skipped"]
    seconds: float
    missed: Literal["", "option", "not applicable", "not made"] = ""
    reason: str = ""
    figures: dict[str, float] | None = None

    @model_validator(mode="after")
    def _says_how_much_it_is_missed(self) -> Self:
        """A check that was left out for a reason that nobody says is not one that needs none."""
        if self.status == "skipped" and not self.missed:
            raise ValueError("a skipped check does not say how much it is missed")
        return self


class _Report(_Part):
    kind: Literal["GpuConformanceReport"]
    mode: str
    began: Any
    environment: _Environment
    checks: list[_Check]
    options: list[str] = []


def is_report(document: object) -> bool:
    """Tell whether a document is a whole report, with all that a comparison looks at."""
    if not isinstance(document, Mapping):
        return False
    try:
        _Report.model_validate(document)
        return _values_in(document, {}) <= _MAX_VALUES
    except (ValidationError, RecursionError):
        return False


def _values_in(value: object, known: dict[int, int]) -> int:
    """Return how many values there are when all is written out; ``known`` has those of parts.

    YAML has names for parts: a page of text can stand for more than any memory holds.
    """
    if not isinstance(value, (Mapping, list)):
        return 1
    if id(value) not in known:
        parts = value.values() if isinstance(value, Mapping) else value
        known[id(value)] = 1 + sum(_values_in(part, known) for part in parts)
    return known[id(value)]
