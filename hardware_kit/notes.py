"""What a step writes down while it runs; it is on the disk at once, for a step that never ends."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from hardware_kit.record import Finding, Table

NOT_SHOWN = "simulated, which shows nothing"


class NotMade(Exception):
    """A step that this machine cannot have, or that something prevents."""


def not_made(reason: str) -> NoReturn:
    """End a step that cannot be made."""
    raise NotMade(reason)


class Notes:
    """Takes findings and tables of one step."""

    def __init__(self, path: Path, *, simulated: bool) -> None:
        self._path = path
        self._simulated = simulated
        self.findings: list[Finding] = []
        self.tables: list[Table] = []
        self.reason = ""

    def equal(self, what: str, expected: object, found: object) -> bool:
        """Hold what was found against what is expected."""
        return self.holds(what, expected == found, expected, found)

    def holds(self, what: str, holds: object, expected: object, found: object) -> bool:
        """Hold a statement; ``expected`` says it in words."""
        return self._add(Finding(what, _text(expected), _text(found), bool(holds)))

    def measured(self, what: str, holds: object, expected: object, found: object) -> bool:
        """Hold what only hardware can show: of simulated GPUs it is told, and nothing more."""
        if self._simulated:
            told = f"{_text(found)} ({NOT_SHOWN})"
            return self._add(Finding(what, _text(expected), told, None))
        return self.holds(what, holds, expected, found)

    def tell(self, what: str, found: object) -> None:
        """Write down what nothing is expected of."""
        self._add(Finding(what, "", _text(found), None))

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Write down figures or answers side by side."""
        texts = tuple(tuple(map(_text, row)) for row in rows)
        self.tables.append(Table(title, tuple(head), texts))
        self.save()

    def save(self) -> None:
        """Put everything on the disk; raises OSError."""
        value = {
            "findings": [asdict(finding) for finding in self.findings],
            "tables": [asdict(table) for table in self.tables],
            "reason": self.reason,
        }
        scratch = self._path.with_suffix(".new")
        scratch.write_text(json.dumps(value))
        scratch.replace(self._path)

    def _add(self, finding: Finding) -> bool:
        self.findings.append(finding)
        self.save()
        return finding.holds is not False


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    return str(value).strip()
