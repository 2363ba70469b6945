"""What is measured of a fleet, and the table of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field


@dataclass
class Figures:
    """What was measured of a fleet; seconds, and per node where it says so."""

    nodes: int
    first_up: float = 0
    follow: list[float] = field(default_factory=list)
    up: float = 0
    change_requests_per_node: float = 0
    change_watch_bytes_per_node: float = 0
    change_processor_ms_per_node: float = 0
    idle_requests_per_node_second: float = 0
    idle_processor_ms_per_node_second: float = 0
    server_mib: float = 0
    diff_live: float = 0
    top: float = 0
    restart: list[float] = field(default_factory=list)
    outage: list[float] = field(default_factory=list)


def _row(name: str, *values: str) -> str:
    return f"{name:<52}" + "".join(f"{value:>12}" for value in values)


def table(found: list[Figures]) -> str:
    """Return the table of all sizes."""

    def spread(values: list[float]) -> str:
        return f"{statistics.median(values):.1f} / {values[-1]:.1f}"

    rows = {
        "`divvy up` for the first time, s": lambda f: f"{f.first_up:.1f}",
        "`divvy up` of another profile, s": lambda f: f"{f.up:.1f}",
        "change → node follows, median / last, s": lambda f: spread(f.follow),
        "  requests a node": lambda f: f"{f.change_requests_per_node:.1f}",
        "  watch bytes a node": lambda f: f"{f.change_watch_bytes_per_node:,.0f}",
        "  processor of the API server a node, ms": lambda f: (
            f"{f.change_processor_ms_per_node:.2f}"
        ),
        "idle: requests a node and second": lambda f: f"{f.idle_requests_per_node_second:.4f}",
        "  processor of the API server a node and second, ms": lambda f: (
            f"{f.idle_processor_ms_per_node_second:.3f}"
        ),
        "memory of the API server, MiB": lambda f: f"{f.server_mib:,.0f}",
        "all agents start at once: median / last, s": lambda f: spread(f.restart),
        "API server back after 20 s: last watch, s": lambda f: f"{f.outage[-1]:.1f}",
        "`divvy diff --live`, s": lambda f: f"{f.diff_live:.1f}",
        "`divvy top --once`, s": lambda f: f"{f.top:.1f}",
    }
    lines = [_row("nodes", *(f"{one.nodes:,}" for one in found))]
    lines += [_row(name, *map(of, found)) for name, of in rows.items()]
    return "\n".join(lines)
