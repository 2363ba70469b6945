"""What the agent's process logs."""

from __future__ import annotations

import asyncio
import logging

import pytest

from divvy.agent.__main__ import is_worth_a_line


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [(asyncio.CancelledError(), False), (ValueError("wrong"), True), (None, True)],
)
def test_logs_no_call_that_a_stop_cancels(error: BaseException | None, *, is_logged: bool) -> None:
    trace = None if error is None else (type(error), error, None)
    record = logging.LogRecord("grpc", logging.ERROR, "", 0, "Exception not handled", (), trace)
    assert is_worth_a_line(record) is is_logged
