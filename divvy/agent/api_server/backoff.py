"""How long to wait for an API server that may be busy: longer after each time that it was."""

from __future__ import annotations

import random

from divvy.agent.api_server.rest import ApiError, Unanswered

_TOO_MANY_REQUESTS = 429
_PAUSE_SECONDS = 2.0
_MAX_PAUSE_SECONDS = 15.0
_MAX_PATIENCE_SECONDS = 60.0


class Backoff:
    """Counts the tries in a row that a server was too busy for."""

    def __init__(self) -> None:
        self._busy = 0

    def answered(self) -> None:
        """Begin again: the server has answered."""
        self._busy = 0

    def unanswered(self) -> None:
        """Note a try that nothing came for."""
        self._busy += 1

    def failed(self, error: Exception) -> float:
        """Note a try that failed, and return the pause before another one, in seconds.

        Thousands of agents hear of a change at one moment: they come back at different ones.
        """
        if not is_busy(error):
            self._busy = 0
            return _spread(_PAUSE_SECONDS)
        pause = self._grown(_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        self._busy += 1
        return _spread(pause)

    def patience(self, seconds: float) -> float:
        """Return how long the next try may take, where the first one may take so many seconds."""
        return self._grown(seconds, _MAX_PATIENCE_SECONDS)

    def _grown(self, seconds: float, longest: float) -> float:
        return min(longest, seconds * 2.0 ** min(self._busy, 10))


def is_busy(error: Exception) -> bool:
    """Return whether the API server is there and has too much to do, or may be and have."""
    if isinstance(error, ApiError):
        return error.code == _TOO_MANY_REQUESTS or error.code >= 500
    return isinstance(error, Unanswered)


def _spread(seconds: float) -> float:
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311
