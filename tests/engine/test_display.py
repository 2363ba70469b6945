"""What a run prints, and that printing never stops it."""

from __future__ import annotations

import os

from divvy.engine.display import PlainDisplay, RunConsole, summary_lines
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import make_urn
from divvy.engine.watcher import StepReport, Summary

KIND = "kubernetes:core/v1:ConfigMap"
URN = make_urn("dev", "p", "", KIND, "one")
STEP = StepReport("create", URN, None, ResourceState(URN, KIND, custom=True))


def test_a_replacement_is_counted_once() -> None:
    old = ResourceState(URN, KIND, custom=True)
    other = make_urn("dev", "p", "", KIND, "other")
    steps = [
        StepReport("replace", URN, old),
        StepReport("delete-replaced", URN, old),
        StepReport("delete", other),
    ]
    summary = Summary(steps=steps, seconds=1.0)
    assert summary_lines(summary, preview=False) == ["1 replaced, 1 deleted (1.0 s)"]
    summary.steps.append(StepReport("delete-replaced", other))
    assert summary_lines(summary, preview=False) == [
        "1 replaced, 1 deleted, 1 left from an earlier replacement deleted (1.0 s)"
    ]


def test_a_reader_who_leaves_does_not_stop_the_run() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", buffering=1) as file:
        display = PlainDisplay(RunConsole(file=file), preview=False)
        display.ended(STEP, None)
        assert "ConfigMap one  created" in os.read(reader, 1000).decode()
        os.close(reader)
        for _ in range(3):
            display.ended(STEP, None)
