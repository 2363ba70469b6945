"""What happens again and again beside a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def repeating(act: Callable[[], object], pause: float) -> Iterator[None]:
    """Call a function after each pause until the block ends."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(pause):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
