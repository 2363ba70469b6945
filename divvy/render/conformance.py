"""A conformance report in a terminal, and what changed since an earlier one."""

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
    result = report["result"]
    counts = report["statistics"]
    simulated = report["mode"] == "simulated"
    first = Text(f"{result}", style=f"bold {_COLOUR[result]}")
    first.append(" (SIMULATED)" if simulated else "")
    first.append(
        f": {counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
    )
    missing = counts.get("requiredNotChecked", 0)
    first.append(f" ({missing} required not checked)" if missing else "", style="yellow")
    yield first
    if simulated:
        yield from _wrapped(report["disclaimer"], "  ", "yellow")
    failed = [check for check in report["checks"] if check["status"] == "failed"]
    for identity in dict.fromkeys(check["id"] for check in failed):
        cases = [check for check in failed if check["id"] == identity]
        yield Text(f"  {identity} {cases[0]['title']} ({cases[0]['level']})", style="red")
        for check in cases:
            yield Text(f"    {check['case']}")
            yield from _wrapped(f"expected: {check.get('expected') or 'no error'}", "      ")
            yield from _wrapped(
                f"actual:   {check.get('actual') or check.get('reason', '')}", "      "
            )
        yield from _wrapped(f"→ {cases[0]['remedy']}", "    ", "dim")
    skipped: dict[str, list[str]] = {}
    for check in report["checks"]:
        if check["status"] == "skipped":
            skipped.setdefault(check.get("reason", ""), []).append(check["id"])
    for reason, identities in skipped.items():
        names = ", ".join(dict.fromkeys(identities))
        yield from _wrapped(f"not checked: {names} ({reason})", "  ", "dim")


def _wrapped(text: str, indent: str, style: str = "") -> Iterator[Text]:
    """Yield text in lines for 80 columns, later lines under the first one's second word."""
    hanging = indent + "  "
    # What a pod has printed may have colours in it, and worse.
    shown = "".join(char if char.isprintable() or char.isspace() else "\ufffd" for char in text)
    lines = textwrap.wrap(
        shown, _COLUMNS, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False
    )
    for line in lines:
        yield Text(line, style=style)


def compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what broke, what was fixed and what is no longer checked since ``old``.

    Raises ValueError for a simulated beside a hardware report, and for reports of two stacks.
    """
    if old["mode"] != new["mode"]:
        raise ValueError(f"a {old['mode']} report cannot be the baseline of a {new['mode']} one")
    stacks = [str(report["environment"]["stack"]) for report in (old, new)]
    if stacks[0] != stacks[1]:
        raise ValueError(f"a report of {stacks[0]} cannot be the baseline of one of {stacks[1]}")
    before, after = _statuses(old), _statuses(new)
    return {
        "broke": [
            key
            for key, status in after.items()
            if status == "failed" and before.get(key) != "failed"
        ],
        "fixed": [
            key
            for key, status in after.items()
            if status == "passed" and before.get(key) == "failed"
        ],
        "no longer checked": [
            key
            for key, status in before.items()
            if status != "skipped" and after.get(key, "skipped") == "skipped"
        ],
    }


def baseline_lines(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Text]:
    """Yield what changed since the baseline."""
    colours = {"broke": "red", "fixed": "green", "no longer checked": "yellow"}
    changes = compared(old, new)
    before, now = (" ".join(one.get("options") or ()) or "no options" for one in (old, new))
    if before != now and (missing := len(changes.pop("no longer checked"))):
        yield Text(
            f"  {missing} cases of the baseline were not checked: it was made with {before}, "
            f"this report with {now}",
            style="yellow",
        )
    for what, keys in changes.items():
        for key in keys:
            yield Text(f"  {what} since the baseline: {key}", style=colours[what])
    if not any(changes.values()):
        yield Text("  the same as the baseline")


def _statuses(report: Mapping[str, Any]) -> dict[str, str]:
    return {f"{check['id']} {check['case']}": check["status"] for check in report["checks"]}
