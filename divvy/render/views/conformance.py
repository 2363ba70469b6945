"""A conformance report in a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rich.text import Text

_COLUMNS = 79
_COLOUR = {
    "success": "green",
    "partial": "yellow",
    "warning": "yellow",
    "failure": "red",
    "nothing checked": "red",
}


def summary_lines(report: Mapping[str, Any]) -> Iterator[Text]:
    """Yield the result first, then every failure with its remedy, then what was not checked."""
    yield Text(summary_words(report), style=_COLOUR[report["result"]])
    if report["mode"] == "simulated":
        yield from wrapped(report["disclaimer"], "  ", "yellow")
    failed = [check for check in report["checks"] if check["status"] == "failed"]
    for identity in dict.fromkeys(check["id"] for check in failed):
        cases = [check for check in failed if check["id"] == identity]
        yield Text(f"  {identity} {cases[0]['title']} ({cases[0]['level']})", style="red")
        for check in cases:
            yield Text(f"    {check['case']}")
            yield from wrapped(f"expected: {check.get('expected') or 'no error'}", "      ")
            yield from wrapped(
                f"actual:   {check.get('actual') or check.get('reason', '')}", "      "
            )
        yield from wrapped(f"→ {cases[0]['remedy']}", "    ", "dim")
    skipped: dict[str, list[str]] = {}
    for check in report["checks"]:
        if check["status"] == "skipped":
            skipped.setdefault(check.get("reason", ""), []).append(check["id"])
    for reason, identities in skipped.items():
        names = ", ".join(dict.fromkeys(identities))
        yield from wrapped(f"not checked: {names} ({reason})", "  ", "dim")


def summary_words(report: Mapping[str, Any]) -> str:
    """Return the result and the counts."""
    counts = report["statistics"]
    simulated = " (SIMULATED)" if report["mode"] == "simulated" else ""
    missing = counts.get("requiredNotChecked", 0)
    open_words = f" ({missing} required not checked)" if missing else ""
    return (
        f"{report['result']}{simulated}: {counts['passed']} passed, {counts['failed']} failed, "
        f"{counts['skipped']} skipped{open_words}"
    )


def wrapped(text: str, indent: str, style: str = "") -> Iterator[Text]:
    """Yield text in lines for 80 columns, later lines under the first one's second word."""
    hanging = indent + "  "
    # What a pod has printed may have colours in it, and worse.
    plain_text = "".join(
        char if char.isprintable() else " " if char.isspace() else "\ufffd" for char in text
    )
    lines = textwrap.wrap(
        plain_text,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_on_hyphens=False,
    )
    for line in lines:
        yield Text(line, style=style)
