"""A node that is drained for an upgrade takes pods again, unless it took none before."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from divvy.lab import lifecycle


@pytest.mark.parametrize("cordoned", [False, True])
def test_keeps_an_administrators_cordon_after_a_drain(
    monkeypatch: pytest.MonkeyPatch, *, cordoned: bool
) -> None:
    commands: list[str] = []

    def kubectl(*arguments: str) -> str:
        commands.append(arguments[0])
        return "true" if cordoned and arguments[0] == "get" else ""

    monkeypatch.setattr(lifecycle, "_kubectl", kubectl)
    machine: Any = SimpleNamespace(node=SimpleNamespace(name="gpu-1"))
    with lifecycle._drained(machine):
        assert commands[-1] == "drain"
    assert ("uncordon" in commands) is not cordoned
