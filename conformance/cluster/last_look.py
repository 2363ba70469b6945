"""``last_look``: wait a bounded time for something that only looking again shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Seen = TypeVar("_Seen")


def last_look(
    look: Callable[[], _Seen], is_enough: Callable[[_Seen], object], seconds: float
) -> _Seen:
    """Look each second until it is enough, or the time is over; return what was seen last."""
    deadline = time.monotonic() + seconds
    while not is_enough(seen := look()) and time.monotonic() <= deadline:
        time.sleep(1)
    return seen
