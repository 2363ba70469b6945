"""Values from outside are read with every error at once, in plain words."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import Field

from divvy.model import InvalidValue
from divvy.model.stack_part import StackPart
from divvy.model.validation import Matches, read


class Inner(StackPart):
    """A part."""

    size: Annotated[int, Field(strict=True, ge=1)]
    """How big it is."""


class Outer(StackPart):
    """A whole."""

    inner_parts: tuple[Inner, ...] = Field(min_length=1)
    """Its parts."""
    name: Annotated[str, Field(strict=True), Matches(r"^[a-z]+$", "a lowercase name")] = "x"
    """What it is called."""
    kind: Literal["a", "b"] = "a"
    """Which it is."""


PARTS = [{"size": 1}]


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        (3, ["whole: is 3; a mapping is expected"]),
        ({}, ["innerParts: is missing; what it says: Its parts"]),
        ({"innerParts": []}, ["innerParts: is empty; at least one entry is expected"]),
        ({"innerParts": [{"size": 0}]}, ["innerParts[0].size: is 0; 1 or more is expected"]),
        ({"innerParts": [{}]}, ["innerParts[0].size: is missing; what it says: How big it is"]),
        (
            {"innerParts": [{"size": 1, "sise": 2}]},
            ["innerParts[0].sise: unknown key; did you mean size?"],
        ),
        (
            {"innerParts": PARTS, "name": "x\n"},
            ["name: is 'x\\n'; a lowercase name is expected"],
        ),
        (
            {"innerParts": PARTS, "name": "", "kind": "c"},
            ["name: is ''; a lowercase name is expected", "kind: is 'c'; a or b is expected"],
        ),
    ],
)
def test_reports_every_error_in_one_sentence_with_the_files_words(
    value: object, problems: list[str]
) -> None:
    with pytest.raises(InvalidValue) as refused:
        read(Outer, value, "whole")
    assert [str(problem) for problem in refused.value.problems] == problems


def test_reads_a_valid_value_into_its_type() -> None:
    assert read(Outer, {"innerParts": PARTS}, "whole") == Outer(innerParts=(Inner(size=1),))
