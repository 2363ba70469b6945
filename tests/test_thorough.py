"""What `make test` leaves out is a list that names tests, each with its reason."""

from __future__ import annotations

import pytest

from tests.functions_of_file import functions_of
from tests.thoroughness import is_left_out, reasons


@pytest.mark.parametrize("entry", reasons())
def test_names_a_test_that_exists(entry: str) -> None:
    file, _, name = entry.partition("::")
    functions = functions_of(file)
    assert functions
    assert not name or name.partition("[")[0] in functions


def test_leaves_out_files_functions_and_cases() -> None:
    assert is_left_out("lab/tests/simulator/test_sanitized.py::test_any[1]")
    function = "tests/conformance/test_on_lab.py::test_keeps_what_idle_pods_hold_on_a_sound_lab"
    assert is_left_out(function)
    killed = (
        "lab/tests/cluster/test_lifecycle.py::test_leaves_nothing_after_down_when_up_was_killed"
    )
    assert is_left_out(f"{killed}[0.2]")
    assert not is_left_out(f"{killed}[1.5]")
    selected = "tests/conformance/test_on_lab.py::test_checks_nothing_when_nothing_is_selected"
    assert not is_left_out(selected)
