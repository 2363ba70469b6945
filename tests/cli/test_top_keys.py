"""The keys of `divvy top`: what each changes, and a terminal in which they are pressed."""

from __future__ import annotations

import io
import os
import pty
import sys
import termios
from contextlib import nullcontext

import pytest
from rich.console import Console

import divvy.cli.top
from divvy.cli.top_keys import Chosen, Keys, reading_keys
from tests.cli.test_top import api, top

__all__ = ["api"]


def after(keys: str) -> Chosen:
    chosen = Chosen()
    for key in keys:
        chosen = chosen.pressed(key)
    return chosen


def test_cycles_through_the_orders_with_s() -> None:
    assert [after("s" * times).order for times in range(5)] == [
        "node", "memory", "utilisation", "age", "node",
    ]  # fmt: skip


def test_edits_keeps_and_drops_a_filter() -> None:
    assert after("/annq").typing
    assert after("/anx\x7fn\r") == Chosen(text="ann")
    assert "filter ann (Esc: all)" in after("/ann\r").words()
    assert after("/ann\r\x1b") == Chosen()
    assert after("/a\x01b").text == "ab"


def test_quits_with_q_except_while_typing() -> None:
    assert after("q").done
    assert not after("/q").done
    assert after("x") == Chosen()


def test_reads_keys_one_by_one_and_restores_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal, end = pty.openpty()
    with os.fdopen(end) as standard_input:
        monkeypatch.setattr(sys, "stdin", standard_input)
        before = termios.tcgetattr(end)
        with reading_keys() as keys:
            assert keys is not None
            assert keys.within(0) == ""
            os.write(terminal, b"s")
            assert keys.within(5) == "s"
            os.write(terminal, b"\x1b[A")  # an arrow
            assert keys.within(5) == ""
        assert termios.tcgetattr(end) == before
    os.close(terminal)


@pytest.mark.usefixtures("api")
def test_follows_the_keys_in_the_live_view_until_q(monkeypatch: pytest.MonkeyPatch) -> None:
    pressed = iter(["/", "tra\r", "s", "q"])
    screens: list[str] = []

    class Pressed(Keys):
        def within(self, seconds: float) -> str:
            assert seconds > 0
            return next(pressed)

    class Screen:
        def __init__(self, **_options: object) -> None: ...

        def __enter__(self) -> Screen:
            return self

        def __exit__(self, *_error: object) -> None: ...

        def update(self, view: object, **_options: object) -> None:
            console = Console(width=80, file=io.StringIO())
            with console.capture() as capture:
                console.print(view)
            screens.append(capture.get())

    monkeypatch.setattr(divvy.cli.top, "Live", Screen)
    with monkeypatch.context() as patch:
        patch.setattr(divvy.cli.top, "reading_keys", lambda: nullcontext(Pressed(0)))
        patch.setattr("rich.console.Console.is_terminal", property(lambda _self: True))
        patch.setattr("rich.console.Console.is_dumb_terminal", property(lambda _self: False))
        top()
    assert len(screens) == 4
    assert "team/w" in screens[0]
    assert "filter: _" in screens[1]
    assert "team/train" in screens[2]
    assert "team/w" not in screens[2]
    assert "sort by memory" in screens[3]
