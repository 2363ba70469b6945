"""Parts of GPUs by annotation: where a stack file names none, they are nobody's."""

from __future__ import annotations

import pytest

from divvy.model.api_names import FRACTION_BEFORE
from divvy.model.fractions import (
    PER_CONTAINER,
    asking,
    fraction_limits,
    fraction_problem,
    is_asked,
)
from divvy.model.stack import Names
from lab.cluster.paths import REPOSITORY

KAI = Names(fraction="gpu-fraction")


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
    for name in (*asking(KAI), PER_CONTAINER, FRACTION_BEFORE, "mps"):
        assert f"`{name}" in section, name
