"""Several statements of one check: each is evidence, and all have to hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance.evidence import Evidence


@dataclass(frozen=True)
class _Statement:
    what: str
    expected: str
    actual: str
    holds: bool


@dataclass
class Findings:
    """Takes statements while a check runs, and judges them in its end."""

    evidence: Evidence
    simulated: bool
    _statements: list[_Statement] = field(default_factory=list)

    def equal(self, what: str, expected: object, actual: object) -> None:
        """Hold what was seen against what is expected."""
        self.holds(what, expected == actual, expected, actual)

    def holds(self, what: str, holds: object, expected: object, actual: object) -> None:
        """Hold a statement; ``expected`` says it in words."""
        statement = _Statement(what, _text(expected), _text(actual), bool(holds))
        self._statements.append(statement)
        word = "" if holds else ": DOES NOT HOLD"
        self.evidence.add(f"{what}: {statement.actual} (expected {statement.expected}){word}")

    def measured(self, what: str, holds: object, expected: object, actual: object) -> None:
        """Hold what only hardware can show: of simulated GPUs it is told, and nothing more."""
        if self.simulated:
            self.tell(what, f"{_text(actual)} (simulated, which shows nothing)")
        else:
            self.holds(what, holds, expected, actual)

    def tell(self, what: str, seen: object) -> None:
        """Keep what nothing is expected of."""
        self.evidence.add(f"{what}: {_text(seen)}")

    def table(self, title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Keep figures or answers side by side."""
        texts = [tuple(head), *(tuple(map(_text, row)) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)
        self.evidence.add("\n".join([f"{title}:", *lines]) if texts[1:] else f"{title}: none")

    def judge(self) -> None:
        """Require all statements; where some do not hold, name those."""
        wrong = [statement for statement in self._statements if not statement.holds]
        named = wrong or self._statements
        self.evidence.require_that(
            not wrong,
            "; ".join(f"{statement.what}: {statement.expected}" for statement in named),
            "; ".join(f"{statement.what}: {statement.actual}" for statement in named),
        )


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value)) or "none"
    return str(value).strip()
