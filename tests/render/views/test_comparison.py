"""What changed between two reports, as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.render.views.comparison import comparison_lines, comparison_markdown
from divvy.reports.comparison import compare_reports
from tests.reports.documents import MUST, document, record


def lines(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [line.plain for line in comparison_lines(compare_reports(old, new))]


OLD = document(*(record("passed", f"n{number}:gpu") for number in range(14)), record("failed", "p"))
NEW = document(
    *(record("failed", f"n{number}:gpu", reason=f"saw <{number}|") for number in range(12)),
    record("passed", "n12:gpu"),
    record("skipped", "n13:gpu", reason="held by a/b", missed="not made"),
    record("passed", "p"),
    kubernetes="v1.37.2",
    options=("--strict",),
)


def test_shows_counts_first_and_few_cases_of_many() -> None:
    summary = lines(OLD, NEW)
    assert summary[:2] == [
        "since the report of 1970-01-01T00:00:00Z: 12 newly failing, 1 newly passing, 1 newly "
        "not checked",
        "  that report was made with no options, this one with --strict",
    ]
    assert summary[2] == f"  newly fails: {MUST.id} {MUST.title} (MUST)"
    assert summary[3] == "    n0:gpu: saw <0|"
    assert "    … and 2 more" in summary
    assert "    n13:gpu: held by a/b" in summary
    assert summary[-1] == "  Kubernetes: v1.36.3 → v1.37.2"


def test_reports_in_one_line_that_nothing_changed() -> None:
    assert lines(OLD, OLD) == [
        "since the report of 1970-01-01T00:00:00Z: every check came out as before"
    ]


def test_writes_the_terminals_content_into_a_comment_without_pods_markup() -> None:
    comment = comparison_markdown(compare_reports(OLD, NEW), NEW)
    assert comment.startswith("## GPU conformance of `s`\n\n**failure: 2 passed, 12 failed, ")
    assert f"| {MUST.id} (MUST) | {MUST.title} | n0:gpu: saw &lt;0\\|<br>n1:gpu" in comment
    assert "| Kubernetes | v1.36.3 | v1.37.2 |  |" in comment
    assert "### Speed" not in comment


def test_writes_pods_words_without_markup_of_markdown() -> None:
    printed = "![a](https://x.example/y) `c` **b** _i_ \\`"
    new = document(record("failed", reason=printed))
    text = comparison_markdown(compare_reports(document(record("passed")), new), new)
    assert "!\\[a](https://x.example/y) \\`c\\` \\*\\*b\\*\\* \\_i\\_ \\\\\\`" in text


@pytest.mark.parametrize("line_break", ["\x85", "\u2028", "\x1c", "\x0b"])
def test_lets_no_pod_begin_a_line(line_break: str) -> None:
    """A terminal, and whoever reads lines, takes these for the end of one, too."""
    new = document(record("failed", reason=f"a{line_break}b"))
    shown = lines(document(record("passed")), new)
    assert [line for line in shown if line_break in line] == []
    assert any("a b" in line for line in shown)


def test_writes_an_earlier_reports_words_without_markup() -> None:
    """Whoever handed it on may have changed it."""
    odd = "x\n\n| <b>a</b>\x1b[2J"
    new = document(record("skipped"))
    old = document(record("passed"))
    (check,) = old["checks"]
    old |= {"began": odd, "options": [odd], "checks": [{**check, "title": odd, "level": odd}]}
    (node,) = old["environment"]["nodes"]
    old["environment"]["nodes"] = [{**node, odd: odd}, {**node, "name": odd}]
    comparison = compare_reports(old, new)
    text = comparison_markdown(comparison, new)
    old |= {"options": []}
    text += comparison_markdown(compare_reports(old, new), new)
    assert "<b>" not in text
    assert "\n| &lt;" not in text
    assert "\x1b" not in text
    shown = "\n".join(line.plain for line in comparison_lines(comparison))
    assert "\x1b" not in shown
