"""Parts of GPUs by annotation: where a stack file names none, they are nobody's."""

from __future__ import annotations

import re

import pytest

from divvy.model import InvalidValue, parse_document
from divvy.model.api_names import FRACTION_BEFORE, IGNORED_ANNOTATIONS
from divvy.model.fractions import (
    PER_CONTAINER,
    asked_as,
    asking,
    fraction_limits,
    fraction_problem,
    is_asked,
)
from divvy.model.stack import Names
from lab.cluster.paths import REPOSITORY

KAI = Names(fraction="gpu-fraction")
WHOLE = {"profiles": {"own": {}}, "pools": {"all": {"profile": "own"}}}
BY_SIZE = {**WHOLE, "profiles": {"own": {"claims": {"shares": {}}}}}


def test_reads_no_annotation_where_the_stack_file_names_none() -> None:
    assert not is_asked({"gpu-fraction": "0.5", "gpu-memory": "2000"}, Names())
    assert is_asked({"gpu-fraction": "0.5"}, KAI)
    assert not is_asked({"gpu-utilization": "0.5"}, KAI)


@pytest.mark.parametrize("hundredths", range(1, 100))
def test_reads_a_fraction_as_whole_per_cent(hundredths: int) -> None:
    limits = fraction_limits({"gpu-fraction": f"{hundredths / 100}"}, KAI)
    assert limits["nvidia.com/gpumem-percentage"] == str(hundredths)


@pytest.mark.parametrize("name", ["gpu-fraction", "gpu-memory"])
def test_refuses_a_value_with_a_line_after_it_as_the_api_server_does(name: str) -> None:
    value = {"gpu-fraction": "0.5", "gpu-memory": "2000"}[name]
    assert fraction_problem({name: value}, KAI, [{"name": "main"}]) == ""
    assert fraction_problem({name: f"{value}\n"}, KAI, [{"name": "main"}])


def test_has_every_annotation_on_the_page() -> None:
    _, _, section = (REPOSITORY / "docs/coming-from.md").read_text().partition("## KAI and Run:ai")
    for name in (*asking(KAI), *PER_CONTAINER, FRACTION_BEFORE, *IGNORED_ANNOTATIONS[-2:]):
        assert f"`{name}" in section, name


@pytest.mark.parametrize(
    ("fraction", "reason"),
    [
        ("gpu-memory", "gpu-memory has a meaning of its own"),
        ("divvy.gpu/fraction", "divvy.gpu/fraction has a meaning of its own"),
        ("not a key!", "is not the name of an annotation"),
    ],
)
def test_refuses_a_name_that_cannot_be_the_fractions(fraction: str, reason: str) -> None:
    document = {**BY_SIZE, "names": {"fraction": fraction}}
    with pytest.raises(InvalidValue, match=re.escape(reason)):
        parse_document(document)


def test_says_how_a_pod_asked_in_few_words() -> None:
    assert asked_as({"gpu-fraction": "0.5", "mine": "1"}, KAI) == "gpu-fraction=0.5"
    assert asked_as({"gpu-fraction": "0.5"}, Names()) == ""
    assert asked_as({FRACTION_BEFORE: "gpu-memory=2000"}, KAI) == "gpu-memory=2000"
    assert len(asked_as({FRACTION_BEFORE: "x\n" * 99}, KAI)) == 80
