"""The events of a run, as one small interface that the display implements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.engine.state.resource import ResourceState


@dataclass(frozen=True)
class StepReport:
    """One step as it is shown and as ``--json`` prints it."""

    operation: str
    urn: str
    old: ResourceState | None = None
    new: ResourceState | None = None
    changed: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()


@dataclass
class Summary:
    """How a run ended: number of steps by operation, failures by URN, the stack's outputs.

    ``recorded``: the state is (in a preview: would be) other than before, which an option or
    an output alone can do.
    """

    steps: list[StepReport] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    recorded: bool = False
    interrupted: bool = False

    def counts(self) -> dict[str, int]:
        """Count steps by operation."""
        counted: dict[str, int] = {}
        for step in self.steps:
            counted[step.operation] = counted.get(step.operation, 0) + 1
        return counted

    @property
    def changes(self) -> int:
        """Count steps that change something."""
        return sum(count for operation, count in self.counts().items() if operation != "same")


class Watcher:
    """Receives the events of a run, from several threads; this one shows nothing."""

    def began(self, step: StepReport) -> None:
        """A step begins."""

    def waiting(self, urn: str, text: str) -> None:
        """A step is waiting for something, or does something worth a line."""

    def ended(self, step: StepReport, failure: str | None) -> None:
        """A step is done, or failed."""

    def message(self, severity: str, text: str, urn: str) -> None:
        """A message of the program or the engine."""

    def redacted(self, text: str) -> str:
        """Return a text without the secrets that it knows."""
        return text


SILENT = Watcher()
