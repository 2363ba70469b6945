"""What is shown of a run, with every secret of the stack's configuration replaced."""

from __future__ import annotations

from collections.abc import Iterable

from divvy.engine.watcher import StepReport, Watcher

# A shorter text is in too many words to be hidden.
_MIN_LENGTH = 3


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Return a text with "[secret]" for each of some texts, the longest first."""
    known = {secret for secret in secrets if len(secret) >= _MIN_LENGTH}
    # One may be part of another.
    for secret in sorted(known, key=lambda text: (-len(text), text)):
        text = text.replace(secret, "[secret]")
    return text


class RedactingWatcher(Watcher):
    """Passes on what a run says, with "[secret]" for every one of some texts."""

    def __init__(self, watcher: Watcher, secrets: Iterable[str]) -> None:
        self._watcher = watcher
        self._secrets = frozenset(secrets)

    def redacted(self, text: str) -> str:
        """Return a text without secrets."""
        return redacted(text, self._secrets)

    def began(self, step: StepReport) -> None:
        """Pass on a step's begin."""
        self._watcher.began(step)

    def waiting(self, urn: str, text: str) -> None:
        """Pass on what a step is waiting for."""
        self._watcher.waiting(urn, self.redacted(text))

    def ended(self, step: StepReport, failure: str | None) -> None:
        """Pass on a step's end."""
        self._watcher.ended(step, None if failure is None else self.redacted(failure))

    def message(self, severity: str, text: str, urn: str) -> None:
        """Pass on a message."""
        self._watcher.message(severity, self.redacted(text), urn)
