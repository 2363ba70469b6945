"""The steps and failures of a run: kept for its summary, passed on to its watcher."""

from __future__ import annotations

import threading

from divvy.engine.watcher import StepReport, Summary, Watcher


class Outcome:
    """Collects steps and failures; called from several threads."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._lock = threading.Lock()
        self.summary = Summary()

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
        self._watcher.message("warning", text, urn)
