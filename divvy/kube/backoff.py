"""``Backoff``: pauses for an API server that refuses or is busy, longer after each time."""

from __future__ import annotations

import random

from divvy.kube.errors import ApiError, Unreachable

_PAUSE_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 15.0
_MAX_PATIENCE_SECONDS = 60.0


class Backoff:
    """Counts the tries in a row that a server was there for, and refused or did not answer."""

    def __init__(self) -> None:
        self._tries = 0

    def answered(self) -> None:
        """Begin again: the server has done what it was asked for."""
        self._tries = 0

    def unanswered(self) -> None:
        """Note a try that nothing came for."""
        self._tries += 1

    def failed(self, error: Exception) -> float:
        """Note a try that failed, and return the pause before another one, in seconds.

        Thousands of agents hear of a change at one moment: they come back at different ones. A
        server that does not listen, as during its restart, is not overloaded by them either.
        """
        is_there = isinstance(error, ApiError) or (isinstance(error, Unreachable) and error.waited)
        if not is_there:
            self._tries = 0
            return _spread(_PAUSE_SECONDS)
        pause = self._grown(_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        self._tries += 1
        return _spread(pause)

    def patience(self, seconds: float) -> float:
        """Return how long the next try may take, where the first one may take so many seconds."""
        return self._grown(seconds, _MAX_PATIENCE_SECONDS)

    def _grown(self, seconds: float, longest: float) -> float:
        return min(longest, seconds * 2.0 ** min(self._tries, 10))


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)
