"""Show a run, one line per event."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from divvy.engine.urn import urn_name, urn_type
from divvy.engine.watcher import StepReport, Summary, Watcher

_SIGN = {
    "create": ("+", "green"),
    "update": ("~", "yellow"),
    "replace": ("+-", "magenta"),
    "delete": ("-", "red"),
    "delete-replaced": ("-", "dim"),
    "same": (" ", "dim"),
    "refresh": ("~", "cyan"),
    "failed": ("!", "red"),
}
_DONE = {
    "create": "created",
    "update": "updated",
    "replace": "replaced",
    "delete": "deleted",
    "delete-replaced": "old resource deleted",
    "same": "unchanged",
}
_PLANNED = {
    "create": "create",
    "update": "update",
    "replace": "replace",
    "delete": "delete",
    "delete-replaced": "delete the old resource",
    "same": "unchanged",
}


class RunConsole(Console):
    """A console whose reader may leave (`divvy up | head`): the run goes on without output.

    Rich would end the thread that prints, which is one that brings a resource to its goal.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, unless the terminal has been closed."""
        try:
            super().print(*objects, **options)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self.on_broken_pipe()

    def on_broken_pipe(self) -> None:
        """Print nowhere from now on."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class Display(Watcher):
    """Prints one line per event, in a terminal and in a log."""

    def __init__(self, console: Console, *, preview: bool) -> None:
        self._console = console
        self._words = _PLANNED if preview else _DONE
        self._began: dict[str, float] = {}
        self._waiting: dict[str, str] = {}
        self._lock = threading.Lock()

    def began(self, step: StepReport) -> None:
        """Remember when it began."""
        self._began[step.urn] = time.monotonic()

    def waiting(self, urn: str, text: str) -> None:
        """Print what a step waits for, when it changes."""
        with self._lock:
            if self._waiting.get(urn) == text:
                return
            self._waiting[urn] = text
        self._line("…", "dim", urn, text)

    def ended(self, step: StepReport, failure: str | None) -> None:
        """Print how it ended."""
        if failure is not None:
            self._line("!", "red", step.urn, f"failed: {failure}")
            return
        if step.operation == "same":
            return
        sign, colour = _SIGN.get(step.operation, ("?", ""))
        self._line(sign, colour, step.urn, described(step, self._words, self._took(step.urn)))

    def message(self, severity: str, text: str, urn: str) -> None:
        """Print a message, unless it is for debugging."""
        if severity != "debug" and text:
            colour = {"error": "red", "warning": "yellow"}.get(severity, "")
            prefix = f"{severity}: " if severity in ("error", "warning") else ""
            self._console.print(
                Text(f"   {prefix}{text}", style=colour), highlight=False, soft_wrap=True
            )

    def _took(self, urn: str) -> float:
        return time.monotonic() - self._began.get(urn, time.monotonic())

    def _line(self, sign: str, colour: str, urn: str, text: str) -> None:
        line = Text(f"{sign:>2} ", style=colour)
        line.append(f"{short_type(urn)} ", style="dim")
        line.append(urn_name(urn), style="bold")
        line.append(f"  {printable_lines(text)}")
        self._console.print(line, highlight=False, soft_wrap=True)


def printable_lines(text: str) -> str:
    """Return a text from outside, such as a container's log, without what drives a terminal."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else " " if char.isspace() else "\ufffd"
        for char in text
    )


def described(step: StepReport, words: dict[str, str], seconds: float) -> str:
    """Describe a finished step in words."""
    word = words.get(step.operation, step.operation)
    paths = step.replace or step.changed
    why = f" ({', '.join(paths[:4])}{', …' if len(paths) > 4 else ''})" if paths else ""
    took = f" in {seconds:.1f} s" if seconds >= 1 else ""
    return f"{word}{why}{took}"


def short_type(urn: str) -> str:
    """Return the type without package and group ("ConfigMap")."""
    return urn_type(urn).rsplit(":", 1)[-1]


def summary_lines(summary: Summary, *, preview: bool) -> list[str]:
    """Describe the end of a run."""
    counts = summary.counts()
    words = _PLANNED if preview else _DONE
    parts = [
        f"{counts[operation]} {'to ' if preview and operation != 'same' else ''}{words[operation]}"
        for operation in ("create", "update", "replace", "delete", "same")
        if counts.get(operation)
    ]
    # Deletions that belong to this run's replacements are not counted again.
    replaced = {step.urn for step in summary.steps if step.operation == "replace"}
    earlier = sum(
        step.operation == "delete-replaced" and step.urn not in replaced for step in summary.steps
    )
    if earlier:
        parts.append(
            f"{earlier} left from an earlier replacement {'to delete' if preview else 'deleted'}"
        )
    if summary.failures:
        parts.append(f"{len(summary.failures)} failed")
    return [f"{', '.join(parts) or 'nothing to do'} ({summary.seconds:.1f} s)"]
