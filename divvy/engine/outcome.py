"""The steps and failures of a run: kept for its summary, passed on to its watcher."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from divvy.engine.redaction import redacted
from divvy.engine.watcher import StepReport, Summary, Watcher


class Outcome:
    """Collects steps and failures; called from several threads."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = threading.Lock()
        self._secrets: set[str] = set()
        self.summary = Summary()

    def hide(self, secrets: Iterable[str]) -> None:
        """Note texts that no failure may repeat: a container's log, for one, has any of them."""
        with self._lock:
            self._secrets.update(secrets)

    def redacted(self, text: str) -> str:
        """Return a text without the secrets of the program and of the configuration."""
        with self._lock:
            text = redacted(text, self._secrets)
        return self._watcher.redacted(text)

    def began(self, step: StepReport) -> None:
        """Note that a step begins."""
        self._watcher.began(step)

    def done(self, step: StepReport) -> None:
        """Note a step that succeeded."""
        with self._lock:
            self.summary.steps.append(step)
        self._watcher.ended(step, None)

    def failed(self, urn: str, text: str, step: StepReport | None = None) -> None:
        """Note a failure; of one resource the first counts, the rest follows from it.

        ``urn`` may also be a word ("program") for a failure outside all resources.
        """
        text = self.redacted(text)
        with self._lock:
            first = urn not in self.summary.failures
            self.summary.failures.setdefault(urn, text)
        if first and "::" in urn:
            self._watcher.ended(step or StepReport("failed", urn), text)

    def inform(self, urn: str, text: str) -> None:
        """Pass on what is worth knowing."""
        self._watcher.message("info", text, urn)

    def warn(self, urn: str, text: str) -> None:
        """Pass a warning on."""
        self._watcher.message("warning", self.redacted(text), urn)
