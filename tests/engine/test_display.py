"""What a run prints, and that printing never stops it."""

from __future__ import annotations

import os
import pty

import pytest

from divvy.cli.runs import watching
from divvy.engine.display import Display, RunConsole, summary_lines
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import make_urn
from divvy.engine.watcher import StepReport, Summary

KIND = "kubernetes:core/v1:ConfigMap"
URN = make_urn("dev", "p", "", KIND, "one")
STEP = StepReport("create", URN, None, ResourceState(URN, KIND, custom=True))


def test_counts_a_replacement_once() -> None:
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


def test_continues_the_run_when_the_reader_leaves() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w", buffering=1) as file:
        display = Display(RunConsole(file=file), preview=False)
        display.ended(STEP, None)
        assert "ConfigMap one  created" in os.read(reader, 1000).decode()
        os.close(reader)
        for _ in range(3):
            display.ended(STEP, None)


def test_passes_no_control_characters_of_a_log_on_to_the_terminal() -> None:
    reader, writer = os.pipe()
    log = "last log lines:\n\x1b]0;title\x07\x9b2J\u202edone\rnow"
    with os.fdopen(writer, "w", buffering=1) as file:
        display = Display(RunConsole(file=file), preview=False)
        display.ended(STEP, log)
        display.waiting(URN, log)
    with os.fdopen(reader) as output:
        shown = output.read()
    assert shown.count("last log lines:\n\ufffd]0;title\ufffd\ufffd2J\ufffddone now") == 2
    assert not any(char in shown for char in "\x1b\x07\x9b\u202e")


def test_keeps_the_line_about_adopted_objects_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader, terminal = pty.openpty()
    with os.fdopen(terminal, "w", buffering=1) as file:
        monkeypatch.setattr("sys.stdout", file)
        monkeypatch.setattr("sys.stderr", file)
        watcher = watching(preview=False)
        watcher.began(STEP)
        watcher.waiting(URN, "takes .data.x over from kubectl")
        watcher.ended(STEP, None)
        output = ""
        while "created" not in output:  # a terminal hands over what it has, not all at once
            output += os.read(reader, 10_000).decode()
    os.close(reader)
    assert "takes .data.x over from kubectl" in output
