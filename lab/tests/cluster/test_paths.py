"""Which names a lab can have: its folder, its bridge and its control groups bear them."""

from __future__ import annotations

import pytest

from conformance.bare.run_state import STATE
from lab.cluster import paths


@pytest.mark.parametrize("name", ["lab", "a", "second", "2"])
def test_takes_short_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "NAME", name)
    assert paths.name_problem() is None


@pytest.mark.parametrize("name", ["", "A", "a-b", "../x", "seventy"])
def test_refuses_names_that_are_no_part_of_a_bridges_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "NAME", name)
    assert paths.name_problem() == (
        f"DIVVY_LAB is {name!r}, one to six lower-case letters or digits are expected"
    )


def test_refuses_the_folder_of_divvy_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    # `divvy lab down` would remove what is to be put back on this machine's GPUs.
    name = STATE.name.removeprefix("divvy-")
    assert paths.STATES / f"divvy-{name}" == STATE
    monkeypatch.setattr(paths, "NAME", name)
    assert paths.name_problem() == (
        f"DIVVY_LAB is '{name}', and {STATE} belongs to `divvy verify --bare`: choose another name"
    )
