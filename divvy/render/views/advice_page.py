"""`divvy advise` as one self-contained HTML page, with a timeline for every pool."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from divvy.advise.advice import Advice, PoolAdvice, Times
from divvy.render.views import advice as wording
from divvy.render.views.page import template

_LEFT, _WIDTH, _HEIGHT, _TOP = 52.0, 620.0, 180.0, 8.0


@dataclass(frozen=True)
class Curve:
    """GPUs over time: a path in the picture's coordinates; ``kind`` is its class."""

    kind: str
    words: str
    path: str


@dataclass(frozen=True)
class TimelineFigure:
    """What pods needed and were given, against what a pool offers, before and after."""

    title: str
    description: str
    width: float
    height: float
    curves: tuple[Curve, ...]
    ticks: tuple[tuple[float, str], ...]
    dates: tuple[tuple[float, str], ...]


def advice_page(advice: Advice) -> str:
    """Return the advice as an HTML page."""
    return template("advice.html.j2").render(
        advice=advice, wording=wording, timeline=timeline_figure
    )


def timeline_figure(pool: PoolAdvice) -> TimelineFigure:
    """Draw a pool's time: GPUs needed, given and offered."""
    times = pool.times
    assert times is not None
    offered = pool.nodes * pool.gpus
    after = pool.recommended.nodes * pool.gpus if pool.recommended else None
    top = max(offered, after or 0, *times.given, *times.needed, 1)

    def y(gpus: float) -> float:
        return round(_TOP + _HEIGHT * (1 - gpus / top), 1)

    def level(gpus: float) -> str:
        return f"M{_LEFT} {y(gpus)}h{_WIDTH}"

    curves = [
        Curve("given", "given to pods", _steps(times.given, y, closed=False)),
        Curve("needed", "needed by them", _steps(times.needed, y, closed=True)),
        Curve("before", f"{offered:,} GPUs of the pool today", level(offered)),
    ]
    if after is not None:
        curves.append(Curve("after", f"{after:,} GPUs on the nodes that stay", level(after)))
    peak, given = max(times.needed), max(times.given)
    return TimelineFigure(
        f"GPUs of pool {pool.pool} over time",
        f"at most {given:.1f} GPUs given and {peak:.1f} needed, of {offered:,}",
        _LEFT + _WIDTH + 2,
        _TOP + _HEIGHT + 22,
        tuple(curves),
        tuple((y(gpus), f"{gpus:g}") for gpus in sorted({0, offered, after or 0})),
        tuple(_dates(times)),
    )


def _steps(values: Sequence[float], y: Callable[[float], float], *, closed: bool) -> str:
    width = _WIDTH / len(values)
    path = f"M{_LEFT} {y(values[0])}" + "".join(f"V{y(value)}h{width:.2f}" for value in values)
    return f"{path}V{y(0)}H{_LEFT}z" if closed else path


def _dates(times: Times) -> Iterator[tuple[float, str]]:
    total = times.seconds * len(times.needed)
    form = "%d %b" if total > 3 * 86_400 else "%d %b %H:%M"
    for part in (0.0, 0.25, 0.5, 0.75):
        moment = datetime.fromtimestamp(times.begin + part * total, UTC)
        yield _LEFT + part * _WIDTH, moment.strftime(form)
