"""The field's words: docs/concepts.md has the glossary, and these words have no place beside it."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(wish(e[sd])?|recuts?|re-cuts?|anew|mend(s|ed)?|doomed|hindrance|overdraws?|workplaces?"
    r"|tenanc(y|ies)|unwell)\b|(?-i:\bMOST_)",
    re.IGNORECASE,
)
# As names they hide what they hold: a variable is named after its content.
HIDING = ("each", "found", "made", "one", "said", "told")
# Every binding of theirs looks like this, and so does some prose; the syntax tree tells which.
BINDING = re.compile(
    r"\b(as|def) +({0})\b|\b({0})\s*([=:,)\]}}]|(in|if)\b)".format("|".join(HIDING))
)
LISTED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
FILES = [
    name
    for name in LISTED.stdout.split()
    if name.endswith((".py", ".md", ".c", ".h", ".tpl", ".j2", "Makefile"))
    and name != "tests/test_words.py"
    and (ROOT / name).exists()
]


@pytest.mark.parametrize("room", sorted({name.partition("/")[0] for name in FILES}))
def test_uses_only_the_fields_words(room: str) -> None:
    uses = [
        f"{name}:{number}: {line.strip()}"
        for name in FILES
        if name.partition("/")[0] == room
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1)
        if WORDS.search(line)
    ]
    assert not uses, "\n".join(uses)


def bindings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of everything that gets a name, but classes and attributes."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.Name(id=str(name), ctx=ast.Store())
                | ast.arg(arg=str(name))
                | ast.FunctionDef(name=str(name))
                | ast.AsyncFunctionDef(name=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.alias(asname=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
            ):
                yield node.lineno, name


def test_binds_no_name_that_hides_what_it_holds() -> None:
    texts = {
        name: (ROOT / name).read_text()
        for name in (*FILES, "tests/test_words.py")
        if name.endswith(".py")
    }
    hiding = [
        f"{file}:{line} {name}"
        for file, text in texts.items()
        if BINDING.search(text)
        for line, name in bindings(ast.parse(text))
        if name in HIDING
    ]
    assert not hiding, "\n".join(hiding)
