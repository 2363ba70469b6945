"""``Evidence`` of a check: expected, actual and what they were read from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

# What has to come of a check, and what did: equal where it holds.
Verdict = tuple[str, str]
_Answer = TypeVar("_Answer")


@dataclass
class Evidence:
    """Filled in by a check while it runs; the report reads it whatever the outcome."""

    expected: str = ""
    actual: str = ""
    command: str = ""
    details: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)

    def add(self, text: object) -> None:
        """Keep something that was seen."""
        self.details.append(str(text).strip())

    def measure(self, unit: str, figure: float) -> None:
        """Keep a figure that says how fast something is, for comparisons; a zero is not kept."""
        if figure:
            self.figures[unit] = round(figure, 3)

    def require(self, expected: object, actual: object) -> None:
        """Hold what was seen against what was promised."""
        self.expected, self.actual = str(expected), str(actual)
        assert actual == expected, f"expected {expected}, saw {actual}"

    def of_agent(self, answer: _Answer | None) -> _Answer:
        """Return what was read in the pod of a node's agent; fail where the node has no agent."""
        if answer is None:
            self.require("an agent on the node", "no agent on the node")
        assert answer is not None
        return answer

    def require_that(self, holds: object, expected: str, actual: object) -> None:
        """Hold a statement; ``expected`` says it in words."""
        self.expected, self.actual = expected, str(actual).strip()
        assert holds, f"expected {expected}, saw {self.actual}"


def sentence(problem: BaseException) -> str:
    """Return what went wrong in words: never source, nor an object as Python prints it."""
    text = str(problem).split("\nassert ")[0].strip()
    if isinstance(problem, AssertionError):
        return text or "something that must hold does not"
    first = text.partition("\n")[0]
    return first if " " in first else f"{type(problem).__name__}: {first}".rstrip(": ")
