"""The comparison of two conformance reports, in a terminal and on a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.render.views.conformance import summary_words, wrapped
from divvy.reports.comparison import CaseChange, Comparison, SpeedChange, VersionChange

# A comment holds so many cases and stays readable; the report has them all.
_CASES_OF_CHECK = 10
_NODES_NAMED = 4
# Of Markdown, and of its tables: a `]` or `!` is nothing without the `[`.
_MARKUP = re.compile(r"[\\`*_|\[]")
_COLOUR = {"newly fails": "red", "newly passes": "green", "newly not checked": "yellow"}


def comparison_lines(comparison: Comparison) -> Iterator[Text]:
    """Yield what changed: the counts first, then outcomes, versions and speed."""
    yield Text(printable(_headline(comparison)), style="bold")
    for words in _remarks(comparison):
        yield from wrapped(words, "  ", "yellow")
    for what, changes in _outcomes(comparison):
        for check, cases in _by_check(changes).items():
            first = cases[0]
            words = printable(f"{what}: {check} {first.title} ({first.level})")
            yield Text(f"  {words}", style=_COLOUR[what])
            for case_words in _cases(what, cases):
                yield from wrapped(case_words, "    ")
    for version in comparison.versions:
        yield from wrapped(_version(version), "  ")
    for speed in comparison.speeds:
        yield from wrapped(_speed(speed), "  ")


def comparison_markdown(comparison: Comparison, new: Mapping[str, Any]) -> str:
    """Return what changed as a comment on a pull request."""
    lines = [f"## GPU conformance of `{new['environment']['stack']}`", ""]
    lines += [f"**{summary_words(new)}**", "", f"{_cell(_headline(comparison))}.", ""]
    lines += [f"* {_cell(words)}" for words in _remarks(comparison)]
    for what, changes in _outcomes(comparison):
        lines += ["", f"### {what.capitalize()}", "", "| check | | cases |", "|---|---|---|"]
        for check, cases in _by_check(changes).items():
            cell_text = "<br>".join(_cell(words) for words in _cases(what, cases))
            name, title = _cell(f"{check} ({cases[0].level})"), _cell(cases[0].title)
            lines.append(f"| {name} | {title} | {cell_text} |")
    if comparison.versions:
        lines += ["", "### Versions", "", "| | before | now | nodes |", "|---|---|---|---|"]
        lines += [
            f"| {_cell(version.name)} | {_cell(version.before)} | {_cell(version.after)} "
            f"| {_cell(some(version.nodes, _NODES_NAMED))} |"
            for version in comparison.versions
        ]
    if comparison.speeds:
        lines += ["", "### Speed", "", "| | before | now | |", "|---|--:|--:|--:|"]
        lines += [
            f"| {_cell(speed.subject)} | {speed.before:g} {speed.unit} "
            f"| {speed.after:g} {speed.unit} | {speed.part:+.0%} |"
            for speed in comparison.speeds
        ]
    return "\n".join(lines) + "\n"


def _headline(comparison: Comparison) -> str:
    since = f"since the report of {comparison.before}"
    if comparison.outcomes_are_the_same:
        return f"{since}: every check came out as before"
    counts = (
        f"{len(comparison.newly_failing)} newly failing",
        f"{len(comparison.newly_passing)} newly passing",
        f"{len(comparison.newly_not_checked)} newly not checked",
    )
    return f"{since}: {', '.join(counts)}"


def _remarks(comparison: Comparison) -> Iterator[str]:
    before, now = comparison.options
    if before != now:
        left = f": {comparison.left_out} of its cases are not in this one"
        yield (
            f"that report was made with {before}, this one with {now}"
            f"{left if comparison.left_out else ''}"
        )
    for what, names in (("new", comparison.nodes_added), ("gone", comparison.nodes_removed)):
        if names:
            yield f"{what} nodes: {some(names, _NODES_NAMED)}"


def _outcomes(comparison: Comparison) -> Iterator[tuple[str, Sequence[CaseChange]]]:
    for what, changes in (
        ("newly fails", comparison.newly_failing),
        ("newly not checked", comparison.newly_not_checked),
        ("newly passes", comparison.newly_passing),
    ):
        if changes:
            yield what, changes


def _by_check(changes: Sequence[CaseChange]) -> dict[str, list[CaseChange]]:
    grouped: dict[str, list[CaseChange]] = {}
    for change in changes:
        grouped.setdefault(change.check, []).append(change)
    return grouped


def _cases(what: str, cases: Sequence[CaseChange]) -> Iterator[str]:
    """Yield a case per line, those that pass in one line: they need no attention."""
    if what == "newly passes":
        yield some([case.case for case in cases], _NODES_NAMED)
        return
    for case in cases[:_CASES_OF_CHECK]:
        yield f"{case.case}: {case.reason or 'no reason'}"
    if len(cases) > _CASES_OF_CHECK:
        yield f"… and {len(cases) - _CASES_OF_CHECK} more"


def _version(change: VersionChange) -> str:
    on = f" on {some(change.nodes, _NODES_NAMED)}" if change.nodes else ""
    return f"{change.name}: {change.before or 'none'} → {change.after or 'none'}{on}"


def _speed(change: SpeedChange) -> str:
    figures = f"{change.before:g} → {change.after:g} {change.unit}"
    return f"speed of {change.subject}: {figures} ({change.part:+.0%})"


def _cell(text: str) -> str:
    """Return text for a cell of a table: what a pod or an earlier report says is no markup."""
    plain = printable(" ".join(text.split())).replace("&", "&amp;").replace("<", "&lt;")
    return _MARKUP.sub(r"\\\g<0>", plain)
