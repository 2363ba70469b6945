"""NodeRuntime's pod is ready only for what its own run has prepared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from divvy.agent.node_runtime import __main__ as program
from divvy.agent.node_runtime.containerd import CannotConfigure


@pytest.fixture
def ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the file that the startup probe looks for, as a run that was killed has left it."""
    ready = tmp_path / "ready"
    ready.touch()
    monkeypatch.setattr(program, "_READY", ready)
    monkeypatch.setattr(program, "Host", object)
    for name in ("NODE_NAME", "NAMESPACE"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("RUNTIME", "containerd")
    return ready


def _run(monkeypatch: pytest.MonkeyPatch, prepare: Any) -> None:
    monkeypatch.setattr(program, "_PREPARE", {"containerd": prepare})
    monkeypatch.setattr("signal.sigwait", lambda _: None)
    program.main()


def test_is_not_ready_by_an_earlier_run_while_it_prepares(
    ready: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_host: object, **_: Any) -> tuple[str, ...]:
        assert not ready.exists()
        raise CannotConfigure("config.toml cannot be read")

    with pytest.raises(SystemExit, match="config.toml cannot be read"):
        _run(monkeypatch, refuse)
    assert not ready.exists()


def test_is_ready_once_the_node_is_prepared(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _run(monkeypatch, lambda _host, **_: ())
    assert ready.exists()
