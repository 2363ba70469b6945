"""Every message that docs/troubleshooting.md or a table of symptoms quotes is in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/troubleshooting.md").read_text()
QUOTED = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
# "| symptom | …", a line of dashes, then the rows.
_TABLE = re.compile(r"^\| symptom \|.*\n\|[-|]+\n((?:\|.*\n)+)", re.MULTILINE)
# What others say: the scheduler.
FOREIGN = {"Insufficient nvidia.com/…"}
ROOMS = ("divvy", "conformance", "plugin_image")


@pytest.fixture(scope="module")
def said() -> str:
    """Return all text of the sources, with literals that follow each other made one."""
    paths = [
        path for room in ROOMS for end in ("py", "c") for path in (ROOT / room).rglob(f"*.{end}")
    ]
    text = "\n".join(path.read_text() for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def symptoms(page: str) -> list[str]:
    """Return the messages that tables of symptoms quote: names and commands are one word."""
    cells = [row.split("|")[1] for table in _TABLE.findall(page) for row in table.splitlines()]
    quotes = [quote for cell in cells for quote in re.findall("`([^`]+)`", cell)]
    return [re.sub(r"[A-Z]{3,}/[A-Z]{3,}", "…", quote) for quote in quotes if " " in quote]


SYMPTOMS = [
    (path.name, quote)
    for path in sorted((ROOT / "docs").glob("*.md"))
    for quote in symptoms(path.read_text())
]


def test_there_are_quotes() -> None:
    assert len(QUOTED) > 20
    assert len(SYMPTOMS) > 15


@pytest.mark.parametrize(("page", "quote"), SYMPTOMS)
def test_a_quoted_symptom_is_said_by_the_code(said: str, page: str, quote: str) -> None:
    for part in re.split(r"\s*…[;:]?\s*", quote):
        assert part.rstrip(":") in said, f"docs/{page}: nothing says {part!r}"


@pytest.mark.parametrize("quote", [one for one in QUOTED if one not in FOREIGN])
def test_a_quoted_sentence_is_said_by_the_code(said: str, quote: str) -> None:
    for part in re.split(r"\s*…[;:]?\s*", quote):
        assert part.rstrip(":") in said, f"nothing in {', '.join(ROOMS)} says {part!r}"
