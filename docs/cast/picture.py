"""The recording as a picture that moves: an SVG, drawn from docs/cast/change.cast.

All lines are there once; steps of CSS move them up, and take the cover off what is not shown yet.
Commands only append, so a terminal that knows colours and ends of lines is enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

CAST = Path(__file__).with_name("change.cast")
_CELL, _LINE, _MARGIN = 8.0, 17, 14
_SPACE = "\N{NO-BREAK SPACE}"  # an SVG drops others
_AT_THE_END = 7.0  # seconds that the last picture stays
_PATTERN = re.compile(r"\x1b\[([\d;]*)m|(\r\n|\n|\r)|([^\x1b\r\n]+)|(\x1b)")
_COLOURS = {
    31: "#ff7b72",
    32: "#7ee787",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#56d4dd",
}
_PAPER, _INK = "#0d1117", "#e6edf3"


@dataclass(frozen=True)
class Style:
    """How a text looks."""

    bold: bool = False
    dim: bool = False
    underlined: bool = False
    reversed: bool = False
    colour: int = 0

    def after(self, codes: str) -> Style:
        """Return the style after an escape sequence: its numbers."""
        style = self
        for code in (int(code or 0) for code in codes.split(";")):
            if code == 0:
                style = Style()
            elif code in _COLOURS:
                style = _with(style, colour=code)
            elif code in _SWITCHES:
                style = _with(style, **{_SWITCHES[code]: True})
            else:
                raise ValueError(f"the recording has the code {code}, which is not drawn")
        return style


_SWITCHES = {1: "bold", 2: "dim", 4: "underlined", 7: "reversed"}


def _with(style: Style, **changes: bool | int) -> Style:
    return Style(**{**style.__dict__, **changes})


@dataclass
class Tape:
    """All that the terminal shows, and where its cursor is at which second."""

    columns: int
    rows: int
    lines: list[list[tuple[str, Style]]] = field(default_factory=lambda: [[]])
    cursor: list[tuple[float, int, int]] = field(default_factory=list)

    def write(self, at: float, text: str, style: Style) -> Style:
        """Append a text; return the style of what follows."""
        for codes, end, plain, other in _PATTERN.findall(text):
            if other:
                raise ValueError(f"the recording moves the cursor: {text!r}")
            if end in ("\n", "\r\n"):
                self.lines.append([])
            elif plain:
                self._append(plain, style)
            elif not end:
                style = style.after(codes)
        self.cursor.append((at, len(self.lines) - 1, self._width()))
        return style

    def _append(self, text: str, style: Style) -> None:
        while text:
            room = self.columns - self._width()
            if not room:
                self.lines.append([])
                continue
            self.lines[-1].append((text[:room], style))
            text = text[room:]

    def _width(self) -> int:
        return sum(len(text) for text, _ in self.lines[-1])


def read_cast(path: Path = CAST) -> Tape:
    """Read a recording; waits are as long as its ``idle_time_limit`` at most."""
    header, *events = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    tape = Tape(header["width"], header["height"])
    style, at, before = Style(), 0.0, 0.0
    for seconds, _, text in events:
        at += min(seconds - before, header["idle_time_limit"])
        before = seconds
        style = tape.write(at, text, style)
    return tape


def cast_svg() -> str:
    """Return the picture."""
    tape = read_cast()
    width = 2 * _MARGIN + round(tape.columns * _CELL)
    height = 2 * _MARGIN + tape.rows * _LINE
    seconds = tape.cursor[-1][0] + _AT_THE_END
    inner = f'width="{width - 2 * _MARGIN}" height="{height - 2 * _MARGIN}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'aria-label="A terminal: divvy plan, an edit, divvy diff, divvy up, pods, divvy top">',
            f"<style>{_style(tape, seconds)}</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="{_PAPER}"/>',
            f'<svg x="{_MARGIN}" y="{_MARGIN}" {inner}><g class="tape">',
            *(line for number, runs in enumerate(tape.lines) for line in _drawn(number, runs)),
            f'<rect class="below" y="{_LINE}" width="100%" height="{len(tape.lines) * _LINE}" '
            f'fill="{_PAPER}"/>',
            f'<rect class="right" width="100%" height="{_LINE}" fill="{_PAPER}"/>',
            "</g></svg>",
            "</svg>\n",
        ]
    )


def _style(tape: Tape, seconds: float) -> str:
    last = tape.cursor[-1]
    moves: dict[str, Callable[[int, int], tuple[float, float]]] = {
        "tape": lambda row, _: (0, -_LINE * max(0, row + 1 - tape.rows)),
        "below": lambda row, _: (0, _LINE * row),
        "right": lambda row, column: (column * _CELL, _LINE * row),
    }
    rules = [
        "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
        f"fill:{_INK}}}.b{{font-weight:700}}.d{{opacity:.65}}"
        ".u{text-decoration:underline}",
        *(f".c{code}{{fill:{colour}}}" for code, colour in _COLOURS.items()),
    ]
    for name, place in moves.items():
        steps, position = [], None
        for at, row, column in _steps(tape.cursor):
            moved = place(row, column)
            if moved != position:
                steps.append(f"{100 * at / seconds:.2f}%{{transform:{_translate(moved)}}}")
                position = moved
        end = _translate(place(last[1], last[2]))
        rules.append(f"@keyframes {name}{{0%{{transform:none}}{''.join(steps)}}}")
        rules.append(f".{name}{{animation:{name} {seconds:.1f}s step-end infinite}}")
        # If nothing is to move, the end is shown.
        rules.append(f"@media(prefers-reduced-motion){{.{name}{{animation:none;transform:{end}}}}}")
    return "".join(rules)


def _translate(moved: tuple[float, float]) -> str:
    return f"translate({moved[0]:g}px,{moved[1]:g}px)"


def _steps(cursor: Sequence[tuple[float, int, int]]) -> Iterator[tuple[float, int, int]]:
    """Yield where the cursor is, a twentieth of a second apart at least."""
    for (at, row, column), following in zip(cursor, [*cursor[1:], None], strict=True):
        if following is None or following[0] - at >= 0.04:
            yield at, row, column


def _drawn(number: int, runs: Sequence[tuple[str, Style]]) -> Iterator[str]:
    column = 0
    for text, style in runs:
        x, wide = column * _CELL, len(text) * _CELL
        column += len(text)
        if style.reversed:
            yield (
                f'<rect x="{x:g}" y="{number * _LINE}" width="{wide:g}" height="{_LINE}" '
                f'fill="{_INK}"/>'
            )
        if not text.strip() and not style.underlined:
            continue
        classes = [
            name
            for name, on in {"b": style.bold, "d": style.dim, "u": style.underlined}.items()
            if on
        ]
        classes += [f"c{style.colour}"] if style.colour else []
        named = f' class="{" ".join(classes)}"' if classes else ""
        ink = f' style="fill:{_PAPER}"' if style.reversed else ""
        yield (
            f'<text x="{x:g}" y="{number * _LINE + 13}" textLength="{wide:g}"{named}{ink}>'
            f"{escape(text, quote=False).replace(' ', _SPACE)}</text>"
        )
