"""The field's words: docs/concepts.md has the glossary, and these words have no place beside it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(wish(e[sd])?|recuts?|re-cuts?|anew|mend(s|ed)?|doomed|hindrance|overdraws?|workplaces?"
    r"|tenanc(y|ies)|unwell)\b|(?-i:\bMOST_)",
    re.IGNORECASE,
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
