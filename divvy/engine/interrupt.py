"""Ctrl-C and SIGTERM: the first stops all waits and records what exists, the second ends at once.

CI systems, systemd and ``timeout`` send SIGTERM.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from divvy.engine.deployment import Deployment

_AT_ONCE = "\ninterrupted immediately; the next run checks what this one had started\n"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def recorded_run(deployment: Deployment, cancel: Callable[[], None]) -> Iterator[None]:
    """Write the checkpoint after the block, also when an interrupt has ended it.

    ``cancel`` makes all waits end soon. A second interrupt ends the process as a kill would: the
    journal has what was begun.
    """
    with _interrupts(cancel) as last:
        try:
            yield
        except KeyboardInterrupt:
            deployment.failed("run", "interrupted; what was begun is recorded")
            deployment.summary.interrupted = True
        last()
        deployment.finish()


@contextmanager
def _interrupts(cancel: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Yield a function that makes the next interrupt the last."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals are the main thread's
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), _AT_ONCE.encode())
        os._exit(130)

    def last() -> None:
        for number in _SIGNALS:
            signal.signal(number, end)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        last()
        cancel()
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in _SIGNALS]
    try:
        yield last
    finally:
        for number, handler in zip(_SIGNALS, before, strict=True):
            signal.signal(number, handler)
