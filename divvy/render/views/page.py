"""Plan and diff as one self-contained HTML page with a picture of every GPU."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined, Template

from divvy.plan import Change, Difference, NodePlan, Plan, level
from divvy.plan.review.verdict import verdict
from divvy.render.views import words as wording
from divvy.render.views.verdict import effect_words, verdict_words
from divvy.render.views.words import (
    Segment,
    bar_slices,
    count_changes,
    gpu_groups,
    plan_title,
    segments,
)

_LABEL = 92.0
_BAR = 560.0
_HEIGHT = 30.0
_GAP = 6.0
_MAX_DIVIDERS = 24
_CHARACTER = 8.2


@dataclass(frozen=True)
class Piece:
    """One segment of a bar in the picture's coordinates."""

    x: float
    width: float
    label: str
    kind: str
    dividers: tuple[float, ...]
    words: str


@dataclass(frozen=True)
class Bar:
    """The bar of one or more equal GPUs; ``side`` is before, after or empty."""

    y: float
    label: str
    side: str
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Figure:
    """A picture with its text alternative."""

    title: str
    description: str
    bars: tuple[Bar, ...]

    @property
    def width(self) -> float:
        """Return the width of the picture."""
        return _LABEL + _BAR + 2

    @property
    def height(self) -> float:
        """Return the height of the picture."""
        return self.bars[-1].y + _HEIGHT + 2 if self.bars else 0


def plan_page(plan: Plan) -> str:
    """Return a plan as an HTML page."""
    return template("plan.html.j2").render(plan=plan, title=plan_title(plan))


def difference_page(difference: Difference) -> str:
    """Return a diff as an HTML page."""
    return template("difference.html.j2").render(
        difference=difference,
        count=count_changes(difference),
        worst=verdict(difference).severity,
        verdict=verdict_words(difference),
        effects=effect_words(difference),
    )


def node_figure(node: NodePlan, title: str) -> Figure:
    """Draw the GPUs of a node."""
    return _figure(title, [("", node)])


def change_figure(change: Change, title: str) -> Figure:
    """Draw the GPUs of a node before a change over those after it."""
    sides = [
        ("before", change.before if change.nodes_before else None),
        ("after", change.after if change.nodes_after else None),
    ]
    return _figure(title, [(side, node) for side, node in sides if node is not None])


def _figure(title: str, sides: Iterable[tuple[str, NodePlan]]) -> Figure:
    bars: list[Bar] = []
    descriptions: list[str] = []
    y = 1.0
    for side, node in sides:
        if bars:
            y += _GAP
        for group in gpu_groups(node):
            unit = _BAR / bar_slices(group.gpu)
            pieces = tuple(
                Piece(
                    x=_LABEL + piece.start * unit,
                    width=piece.size * unit,
                    label=_fitting(piece, piece.size * unit),
                    kind=_kind(piece.label, group.gpu.placements is not None, piece.shares),
                    dividers=_dividers(
                        _LABEL + piece.start * unit, piece.size * unit, piece.shares
                    ),
                    words=f"{piece.resource}, {piece.words}" if piece.resource else piece.words,
                )
                for piece in segments(group.gpu)
            )
            bars.append(Bar(y, group.label, side, pieces))
            listed = "; ".join(piece.words for piece in pieces)
            descriptions.append(f"{side + ', ' if side else ''}{group.label}: {listed}")
            y += _HEIGHT + _GAP
    return Figure(title, ". ".join(descriptions), tuple(bars))


def drawn(title: str, rows: Iterable[tuple[str, Iterable[tuple[float, str, str, str]]]]) -> Figure:
    """Draw bars of any pieces: part of the bar, label (if it has room), kind and words of each."""
    bars: list[Bar] = []
    descriptions: list[str] = []
    for number, (label, parts) in enumerate(rows):
        pieces: list[Piece] = []
        x = _LABEL
        for part, text, kind, words in parts:
            width = part * _BAR
            piece_label = text if len(text) * _CHARACTER < width else ""
            pieces.append(Piece(x, width, piece_label, kind, (), words))
            x += width
        bars.append(Bar(1.0 + number * (_HEIGHT + _GAP), label, "", tuple(pieces)))
        descriptions.append(f"{label}: {'; '.join(piece.words for piece in pieces)}")
    return Figure(title, ". ".join(descriptions), tuple(bars))


def _fitting(piece: Segment, width: float) -> str:
    """Return the longest label of a piece that its width holds."""
    cut = piece.label != piece.full_label
    shares = f" ×{piece.shares}" if piece.shares > 1 and cut else ""
    for label in (piece.full_label + shares, piece.full_label, piece.label + shares):
        if len(label) * _CHARACTER < width:
            return label
    return piece.label


def _kind(label: str, cut: bool, shares: int) -> str:
    if not label:
        return "free"
    if not cut:
        return "whole" if shares == 1 else "shared"
    return f"mig{label[0]}"


def _dividers(x: float, width: float, shares: int) -> tuple[float, ...]:
    if shares == 1 or shares > _MAX_DIVIDERS:
        return ()
    return tuple(round(x + width * number / shares, 2) for number in range(1, shares))


def _tone(before: int, after: int) -> str:
    """Return the class of a count's change: ``plus``, ``minus``, or ``soft`` for the same."""
    return "soft" if before == after else "plus" if after > before else "minus"


@cache
def _environment() -> Environment:
    folder = files("divvy.render.views") / "templates"
    environment = Environment(
        loader=FunctionLoader(lambda name: (folder / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        node_figure=node_figure,
        change_figure=change_figure,
        wording=wording,
        tone=_tone,
        level=level,
    )
    environment.filters["number"] = lambda value: f"{value:,}"
    environment.filters["meaning"] = lambda words: words.partition(": ")[2]
    return environment


def template(name: str) -> Template:
    """Return a template of this folder by its file's name."""
    return _environment().get_template(name)
