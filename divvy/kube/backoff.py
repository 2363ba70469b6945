"""``Backoff``: pauses for an API server that refuses or is busy, longer after each time."""

from __future__ import annotations

import random
from time import monotonic

from divvy.kube.errors import ApiError, Unreachable

_PAUSE_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 15.0
_MAX_PATIENCE_SECONDS = 60.0


class Backoff:
    """Counts the tries in a row that a server was there for, and refused or did not answer.

    How long a slow one took for what it has done counts for the tries after that: whoever began
    again with the shortest time would ask it in vain after each watch that breaks.
    """

    def __init__(self) -> None:
        self._tries = 0
        self._timeouts = 0
        self._began: float | None = None
        self._needed = 0.0

    def answered(self) -> None:
        """Begin again: the server has done what it was asked for."""
        self._tries = self._timeouts = 0
        if self._began is not None:
            self._needed, self._began = monotonic() - self._began, None

    def unanswered(self) -> None:
        """Note a try that nothing came for."""
        self._tries += 1
        self._timeouts += 1

    def failed(self, error: Exception) -> float:
        """Note a try that failed, and return the pause before another one, in seconds.

        Thousands of agents hear of a change at one moment: they come back at different ones. A
        server that does not listen, as during its restart, is not overloaded by them either.
        """
        waited = isinstance(error, Unreachable) and error.waited
        self._timeouts += waited
        if not waited and not isinstance(error, ApiError):
            self._tries = 0
            return _spread(_PAUSE_SECONDS)
        pause = _grown(_PAUSE_SECONDS, self._tries, _MAX_PAUSE_SECONDS)
        self._tries += 1
        return _spread(pause)

    def patience(self, seconds: float) -> float:
        """Return how long the try that begins may take, where the first may take so many seconds.

        Twice what the last one took that was answered, and longer after each that was not.
        """
        self._began = monotonic()
        longer = _grown(seconds, self._timeouts, _MAX_PATIENCE_SECONDS)
        return min(max(longer, 2 * self._needed), _MAX_PATIENCE_SECONDS)


def _grown(seconds: float, times: int, longest: float) -> float:
    return min(longest, seconds * 2.0 ** min(times, 10))


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)
