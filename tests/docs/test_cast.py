"""The recording shows what the commands print today, and its picture draws no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.cast.picture import CAST, Style, Tape, cast_svg, read_cast
from docs.cast.record import COLUMNS, COMMANDS, EDIT, write_project
from tests.docs.page_commands import Shell


def shown() -> dict[str, list[str]]:
    """Return the lines after each command of the recording."""
    outputs: dict[str, list[str]] = {}
    lines: list[str] = []
    for runs in read_cast().lines:
        text = "".join(text for text, _ in runs).rstrip()
        if text.startswith("$ "):
            lines = outputs.setdefault(text.removeprefix("$ "), [])
        else:
            lines.append(text)
    return outputs


def test_records_every_command_in_its_order() -> None:
    assert tuple(shown()) == COMMANDS


def test_shows_what_plan_and_diff_print_today(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    write_project(folder)
    shell = Shell(folder, tmp_path / "programs")
    plan, diff = (entry for entry in COMMANDS if entry.startswith(("divvy plan", "divvy diff")))
    for command in (plan, EDIT, diff):
        output = shell.run(f"COLUMNS={COLUMNS} {command}", expect=(0, 2))
        printed = [line.rstrip() for line in output.splitlines()]
        assert words(shown()[command]) == words(printed), "python -m docs.cast.record"


def words(lines: list[str]) -> list[str]:
    """Return the words of lines, without bars: a terminal's are drawn, a file's are letters."""
    return [word for line in lines for word in re.sub(r"[▕▏│|]", " ", line).split()]


def test_is_small_and_well_formed() -> None:
    picture = cast_svg()
    assert ElementTree.fromstring(picture).tag.endswith("svg")
    assert len(picture) < 300_000
    assert CAST.stat().st_size < 300_000


def test_draws_text_where_the_terminal_has_it() -> None:
    tape = Tape(columns=4, rows=2)
    tape.write(1.0, "ab\r\n\x1b[1mcdefg\x1b[0mh", Style())
    texts = [[(text, style.bold) for text, style in runs] for runs in tape.lines]
    assert texts == [[("ab", False)], [("cdef", True)], [("g", True), ("h", False)]]
    assert tape.cursor == [(1.0, 2, 2)]


def test_cuts_waits(tmp_path: Path) -> None:
    header = {"version": 2, "width": 4, "height": 2, "idle_time_limit": 2}
    path = tmp_path / "x.cast"
    events = ([1.0, "o", "a"], [61.0, "o", "b"], [61.5, "o", "c"])
    path.write_text("\n".join(map(json.dumps, (header, *events))))
    assert [at for at, _, _ in read_cast(path).cursor] == [1.0, 3.0, 3.5]


def test_refuses_what_it_does_not_draw() -> None:
    tape = Tape(columns=4, rows=2)
    with pytest.raises(ValueError, match="moves the cursor"):
        tape.write(1.0, "\x1b[2J", Style())
    with pytest.raises(ValueError, match="the code 38"):
        tape.write(1.0, "\x1b[38;5;1m", Style())
