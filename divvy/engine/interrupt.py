"""Signals: the first stops all waits and records what exists, a second one ends at once.

Ctrl-C is SIGINT; CI systems, systemd and ``timeout`` send SIGTERM. A terminal that closes sends
SIGHUP, more than once (its shell and the kernel), so that no SIGHUP counts as the second.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from divvy.engine.deployment import Deployment

_FIRST = "\ninterrupted; waiting for the steps in progress (a second interrupt ends immediately)\n"
_AT_ONCE = "\ninterrupted immediately; the next run checks what this one had started\n"
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def recorded_run(deployment: Deployment, cancel: Callable[[], None]) -> Iterator[None]:
    """Write the checkpoint after the block, also when an interrupt has ended it.

    ``cancel`` makes all waits end soon. A second interrupt ends the process as a kill would: the
    journal has what was begun.
    """
    with _interrupts(cancel) as last:
        try:
            yield
        except KeyboardInterrupt:
            deployment.failed("run", "interrupted; the steps in progress are recorded")
            deployment.summary.interrupted = True
        last()
        deployment.finish()


@contextlib.contextmanager
def _interrupts(cancel: Callable[[], None]) -> Iterator[Callable[[], None]]:
    """Yield a function that makes the next interrupt the last."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals are the main thread's
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        _say(_AT_ONCE)
        os._exit(130)

    def last() -> None:
        for number in _INTERRUPTS:
            signal.signal(number, end)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def interrupt(number: int, _frame: FrameType | None) -> None:
        last()
        if number == signal.SIGHUP:
            _leave_terminal()
        _say(_FIRST)
        cancel()
        raise KeyboardInterrupt

    numbers = [*_INTERRUPTS]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # under nohup the run goes on
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield last
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    # Its reader may have left, and `2>&-` may have given its number to another file.
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), text.encode())


def _leave_terminal() -> None:
    """Print nowhere where the output is a terminal: each line to a closed one is an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        if stat.S_ISCHR(os.fstat(stream).st_mode):
            os.dup2(nowhere, stream)
    os.close(nowhere)
