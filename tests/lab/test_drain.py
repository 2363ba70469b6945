"""A node is drained for an upgrade, which may be interrupted and taken up again."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from divvy.lab import lifecycle

pytestmark = pytest.mark.pure


def test_leaves_no_cordon_behind_when_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    cordoned = False

    def kubectl(*arguments: str) -> str:
        nonlocal cordoned
        if arguments[0] in ("drain", "uncordon"):
            cordoned = arguments[0] == "drain"
        return "true" if cordoned and arguments[0] == "get" else ""

    monkeypatch.setattr(lifecycle, "_kubectl", kubectl)
    machine = Mock()
    machine.node.name = "gpu-1"
    with pytest.raises(KeyboardInterrupt), lifecycle._drained(machine):
        raise KeyboardInterrupt
    with lifecycle._drained(machine):
        pass
    assert not cordoned
