"""The page docs/fleets.md and its plot, from what `lab.benchmarks.fleet --keep` measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lab.benchmarks.fleet.figures import ROWS, Figures, faster_than_nodes, read_figures

FIGURES = Path(__file__).parent / "fleets/figures.json"

_INTRODUCTION = """\
# Fleets

What a cluster of many GPU nodes costs; measured as root by
`python -m lab.benchmarks.fleet --keep 100 1000 5000`.

The API server, etcd, the scheduler and the controllers are real, and so is `divvy up`. Nodes are
objects as large as a kubelet's, with 50 images; each has the link that its agent has to the API
(two watches, status, labels), with its own pod's token. What a kubelet does for the agent is
imitated: pods become ready, and allocatable follows the status. Kubelets' heartbeats are left out.

**Everything shares {processors} processors**: the links, which in a cluster run on its nodes, and
the API server, which in a cluster has its own machines. So the seconds are an upper bound; what
the API server spends on a node is the figure to plan with.

![Seconds by number of nodes](pictures/fleets.svg)

"""

_GROWTH = """\
## What grows faster than the nodes

More than a fifth faster than the nodes, for the whole fleet, from one size to the next: """

_GOAL = """\
## What bounds a change

After a change, each node's object is written twice, by the agent (status and labels) and by the
kubelet (allocatable), and each write handles the whole object: 8 kB here. At {cost:.0f} ms of
the API server's processor time per node, {nodes:,} nodes take {seconds:.0f} s of it, on two
processors at least {half:.0f} s. The target of 10 s for 5,000 nodes needs about {wanted:.0f}
processors for the API server alone.
"""

_LINES: tuple[tuple[str, str, Callable[[Figures], float]], ...] = (
    ("change → the last node follows", "#76b900", lambda f: f.follow.last),
    ("divvy up of another profile", "#1f6feb", lambda f: f.up),
    ("all agents start at once", "#d97706", lambda f: f.restart.last),
    ("divvy diff --live", "#8250df", lambda f: f.diff_live),
)
_LEFT, _TOP, _WIDTH, _HEIGHT, _LEGEND = 70, 20, 420, 300, 280


def fleets_page() -> str:
    """Return the page."""
    figures = read_figures(FIGURES)
    processors = ", ".join(map(str, sorted({size.processors for size in figures})))
    lines = ["| nodes | " + " | ".join(f"{size.nodes:,}" for size in figures) + " |"]
    lines.append("|---|" + "--:|" * len(figures))
    lines += [
        f"| {row.name} | " + " | ".join(row.text(size) for size in figures) + " |" for row in ROWS
    ]
    lines.append("| measured | " + " | ".join(size.date for size in figures) + " |")
    text = _INTRODUCTION.format(processors=processors) + "\n".join(lines) + "\n\n"
    faster = dict.fromkeys(node.partition(": ")[0] for node in faster_than_nodes(figures))
    text += f"{_GROWTH}{'; '.join(faster) or 'nothing'}."
    largest = figures[-1]
    cost = largest.change_server_ms_per_node
    seconds = cost * largest.nodes / 1000
    return f"{text}\n\n" + _GOAL.format(
        cost=cost,
        nodes=largest.nodes,
        seconds=seconds,
        half=seconds / 2,
        wanted=math.ceil(cost * 5000 / 1000 / 10),
    )


def fleets_plot() -> str:
    """Return the plot: seconds by nodes, both axes logarithmic."""
    figures = read_figures(FIGURES)
    seconds = [of(size) for _, _, of in _LINES for size in figures]
    across = _Axis([size.nodes for size in figures], _LEFT, _LEFT + _WIDTH)
    up = _Axis(seconds, _TOP + _HEIGHT, _TOP)
    size = f"{_LEFT + _WIDTH + _LEGEND} {_TOP + _HEIGHT + 60}"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_grid(across, up, figures),
        *_curves(across, up, figures),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


class _Axis:
    """A logarithmic axis, from a power of ten to a power of ten."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self._begin, self._length = begin, end - begin

    def at(self, value: float) -> float:
        return self._begin + self._length * (math.log10(value) - self.low) / (self.high - self.low)

    def tens(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def _grid(across: _Axis, up: _Axis, figures: Sequence[Figures]) -> Iterator[str]:
    right, bottom = _LEFT + _WIDTH, _TOP + _HEIGHT
    for value in up.tens():
        y = up.at(value)
        yield f'<path d="M{_LEFT} {y:.1f}H{right}" stroke="#d0d7de"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g} s</text>'
    for nodes in (size.nodes for size in figures):
        x = across.at(nodes)
        yield f'<path d="M{x:.1f} {_TOP}V{bottom}" stroke="#eaeef2"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{nodes:,}</text>'
    yield f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" stroke="#57606a" fill="none"/>'
    middle = _LEFT + _WIDTH / 2
    yield f'<text x="{middle:.1f}" y="{bottom + 44}" text-anchor="middle">nodes</text>'


def _curves(across: _Axis, up: _Axis, figures: Sequence[Figures]) -> Iterator[str]:
    for number, (name, colour, of) in enumerate(_LINES):
        points = [(across.at(size.nodes), up.at(of(size))) for size in figures]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
        for x, y in points:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
        x, y = _LEFT + _WIDTH + 20, _TOP + 20 + 22 * number
        yield f'<path d="M{x} {y}h18" stroke="{colour}" stroke-width="3"/>'
        yield f'<text x="{x + 26}" y="{y + 4}">{name}</text>'
