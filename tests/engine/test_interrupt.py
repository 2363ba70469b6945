"""Signals in the middle of a run."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest

from divvy.engine.interrupt import _interrupts


def test_ends_at_the_second_interrupt_also_if_nobody_reads_its_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cancelled: list[bool] = []
    codes: list[int] = []

    def broken(*_: object) -> int:
        raise BrokenPipeError

    with monkeypatch.context() as patch, _interrupts(lambda: cancelled.append(True)):
        patch.setattr(os, "write", broken)
        patch.setattr(os, "_exit", codes.append)
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert (cancelled, codes) == ([True], [])
        signal.raise_signal(signal.SIGTERM)
    assert codes == [130]
