"""What is measured of a fleet, kept as JSON, and its rows in tables."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass(frozen=True)
class Spread:
    """Seconds until the node in the middle, and until the last one."""

    median: float = 0
    last: float = 0

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        """Return that of what each node took."""
        return cls(round(statistics.median(seconds), 3), round(max(seconds), 3))


@dataclass
class Figures:
    """What was measured of a fleet; seconds, and per node where it says so."""

    nodes: int
    date: str = ""
    processors: int = 0
    load: float = 0
    """The machine's load when the measurement began."""
    first_up: float = 0
    up: float = 0
    follow: Spread = field(default_factory=Spread)
    change_requests_per_node: float = 0
    change_watch_bytes_per_node: float = 0
    change_server_ms_per_node: float = 0
    change_links_ms_per_node: float = 0
    idle_requests_per_node_second: float = 0
    idle_server_ms_per_node_second: float = 0
    server_mib: float = 0
    restart: Spread = field(default_factory=Spread)
    outage: float = 0
    diff_live: float = 0
    top: float = 0


@dataclass(frozen=True)
class Row:
    """A row of the table; ``total``: what it is for the whole fleet, where that is comparable."""

    name: str
    text: Callable[[Figures], str]
    total: Callable[[Figures], float] | None = None


def _whole(name: str, value: Callable[[Figures], float], digits: str = ".1f") -> Row:
    """Return the row of what was measured of the whole fleet."""
    return Row(name, lambda f: format(value(f), digits), value)


def _per_node(name: str, value: Callable[[Figures], float], digits: str = ".1f") -> Row:
    """Return the row of what was measured of each node."""
    return Row(name, lambda f: format(value(f), digits), lambda f: value(f) * f.nodes)


def _last(name: str, value: Callable[[Figures], Spread]) -> Row:
    """Return the row of what the nodes took, which is compared by the last one."""
    return Row(
        name, lambda f: f"{value(f).median:.1f} / {value(f).last:.1f}", lambda f: value(f).last
    )


ROWS = (
    _whole("`divvy up` for the first time, s", lambda f: f.first_up),
    _whole("`divvy up` of another profile, s", lambda f: f.up),
    _last("change → node follows, median / last, s", lambda f: f.follow),
    _per_node("– requests a node", lambda f: f.change_requests_per_node),
    _per_node("– watch bytes a node", lambda f: f.change_watch_bytes_per_node, ",.0f"),
    _per_node("– processor of the API server a node, ms", lambda f: f.change_server_ms_per_node),
    _per_node("– processor of the node's own link, ms", lambda f: f.change_links_ms_per_node),
    _per_node("idle: requests a node and second", lambda f: f.idle_requests_per_node_second, ".4f"),
    _per_node(
        "– processor of the API server a node and second, ms",
        lambda f: f.idle_server_ms_per_node_second,
        ".3f",
    ),
    _whole("memory of the API server, MiB", lambda f: f.server_mib, ",.0f"),
    _last("all agents start at once, median / last, s", lambda f: f.restart),
    _whole("API server back after 20 s → every watch is open, s", lambda f: f.outage),
    _whole("`divvy diff --live`, s", lambda f: f.diff_live),
    _whole("`divvy top --once`, s", lambda f: f.top),
    Row("load of the machine at the start", lambda f: f"{f.load:.1f}"),
)


def table(figures: Sequence[Figures]) -> str:
    """Return the table of all sizes, for a terminal."""
    rows = [("nodes", [f"{size.nodes:,}" for size in figures])]
    rows += [(row.name, [row.text(size) for size in figures]) for row in ROWS]
    return "\n".join(f"{name:<56}" + "".join(f"{text:>14}" for text in of) for name, of in rows)


def faster_than_nodes(figures: Sequence[Figures], tolerance: float = 1.2) -> list[str]:
    """Return the rows that grow faster than the nodes between two neighbouring sizes, and how.

    ``tolerance``: by how much more than the nodes, since two runs differ as well.
    """
    problems = []
    for row in ROWS:
        if row.total is None:
            continue
        for small, large in pairwise(figures):
            nodes, was = large.nodes / small.nodes, row.total(small)
            times = row.total(large) / was if was else 0
            if times > nodes * tolerance:
                problems.append(
                    f"{row.name.removeprefix('– ')}: {times:.0f} times as much with "
                    f"{large.nodes:,} nodes as with {small.nodes:,}"
                )
    return problems


def read_figures(path: Path) -> list[Figures]:
    """Read what ``keep`` has kept, smallest fleet first."""
    spreads = ("follow", "restart")
    return [
        Figures(**{**load, **{name: Spread(**load[name]) for name in spreads}})
        for load in json.loads(path.read_text())
    ]


def keep(path: Path, figures: Figures) -> None:
    """Put a fleet's figures into a file, in place of older ones of its size."""
    others = read_figures(path) if path.exists() else []
    sizes = [*(other for other in others if other.nodes != figures.nodes), figures]
    text = json.dumps([asdict(size) for size in sorted(sizes, key=lambda size: size.nodes)])
    rounded = json.loads(text, parse_float=lambda digits: round(float(digits), 4))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(rounded, indent=1) + "\n")
