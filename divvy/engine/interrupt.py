"""Ctrl-C: the first ends every waiting and records what there is, the second ends at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

from divvy.engine.deployment import Deployment

_AT_ONCE = "\ninterrupted: ended at once; the next run looks up what this one has begun\n"


@contextmanager
def recorded_run(deployment: Deployment, cancel: Callable[[], None]) -> Iterator[None]:
    """Write the checkpoint after the block, also when an interrupt has ended it.

    ``cancel`` makes what is still waiting end soon. A second interrupt ends the process as a
    kill would: the journal has what was begun.
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
def _interrupts(cancel: Callable[[], None]) -> Iterator[Callable[[], object]]:
    """Yield what makes the next interrupt the last."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals are the main thread's
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        os.write(sys.stderr.fileno(), _AT_ONCE.encode())
        os._exit(130)

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, end)
        cancel()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield partial(signal.signal, signal.SIGINT, end)
    finally:
        signal.signal(signal.SIGINT, before)
