"""The shared parts of runs, without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from divvy.cli import runs
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.store import StateStore
from divvy.engine.watcher import StepReport, Summary

URN = "urn:pulumi:dev::p::t::a"


@pytest.mark.parametrize("changed", [True, False])
def test_looks_at_the_nodes_again_after_a_run_that_failed_halfway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    store = StateStore(tmp_path, "p", "dev", lambda: None)
    store.done(ResourceState(URN, "t", custom=True))
    store.write([])
    steps = [StepReport("update" if changed else "same", URN)]
    summary = Summary(steps=steps, failures={"run": "interrupted"}, interrupted=True)
    monkeypatch.setattr(runs.operations, "up", lambda *_: summary)
    program: Any = None
    with pytest.raises(typer.Exit):
        runs.run_up(program, "dev", yes=False, diff=False, wait=True)
    assert store.unsettled_path.exists() is changed
