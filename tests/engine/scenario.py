"""Scenarios in which the official engine was watched, and what this engine does in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import pytest

from divvy.lab.paths import REPOSITORY


@dataclass(frozen=True)
class Scenario:
    """One row: what happens, what the official engine does, what this one does, the test.

    ``verdict`` is "equal", "refused" (by name, nothing touched) or "other" (on purpose, as
    ``ours`` says).
    """

    title: str
    official: str
    verdict: str
    ours: str
    test: str


DOCUMENT = REPOSITORY / "docs/engine-scenarios.md"
_BEGIN = "<!-- written by python -m tests.engine.scenario -->\n"
_END = "<!-- end -->\n"
# The files of tests/engine/scenarios in the table's order.
SUBJECTS = (
    "secrets",
    "identity",
    "failures",
    "clusters",
    "ownership",
    "hand_edits",
    "namespaces",
    "dynamic",
    "programs",
    "options",
)
SCENARIOS: dict[str, dict[str, Scenario]] = {subject: {} for subject in SUBJECTS}


def scenario(
    title: str, official: str, verdict: str, ours: str = ""
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Mark a test as the proof of a row."""
    assert verdict in ("equal", "refused", "other")
    assert verdict != "other" or ours

    def marked(test: Callable[..., None]) -> Callable[..., None]:
        subject = test.__module__.rpartition(".test_")[2]
        SCENARIOS[subject][test.__name__] = Scenario(title, official, verdict, ours, test.__name__)
        return pytest.mark.lab(test)  # type: ignore[no-any-return]

    return marked


def load() -> None:
    """Load all scenarios."""
    for subject in SUBJECTS:
        import_module(f"tests.engine.scenarios.test_{subject}")


def table() -> str:
    """Return the rows as Markdown."""
    lines = ["| what happens | official engine | this engine |", "|---|---|---|"]
    for row in (row for rows in SCENARIOS.values() for row in rows.values()):
        ours = row.ours if row.verdict == "other" else row.verdict
        if row.verdict == "refused" and row.ours:
            ours += f"; {row.ours}"
        lines.append(f"| {row.title} | {row.official} | {ours} |")
    return "\n".join(lines) + "\n"


def with_table(text: str) -> str:
    """Return the documentation's text with the table of these rows."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}{table()}{_END}{tail}"


if __name__ == "__main__":
    # Run as a script, this module is another one than the tests know; they fill that one.
    from tests.engine import scenario as filled

    filled.load()
    DOCUMENT.write_text(filled.with_table(DOCUMENT.read_text()))
