"""What is kept of a fleet's measurement, and what is said of its growth."""

from __future__ import annotations

from pathlib import Path

from lab.benchmarks.fleet.figures import (
    Figures,
    Spread,
    faster_than_nodes,
    keep,
    read_figures,
    table,
)


def figures(nodes: int, up: float, cost: float) -> Figures:
    return Figures(nodes, up=up, change_server_ms_per_node=cost, follow=Spread.of([1, 2, nodes]))


def test_replaces_an_older_fleet_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    for results in (figures(1000, 9, 5), figures(100, 3, 5), figures(1000, 8.00001, 5)):
        keep(path, results)
    assert read_figures(path) == [figures(100, 3, 5), figures(1000, 8, 5)]


def test_names_what_grows_faster_than_the_nodes() -> None:
    results = [figures(100, 1, 5), figures(1000, 30, 6.1), figures(2000, 60, 6.1)]
    assert faster_than_nodes(results) == [
        "`divvy up` of another profile, s: 30 times as much with 1,000 nodes as with 100",
        "processor of the API server a node, ms: 12 times as much with 1,000 nodes as with 100",
    ]


def test_prints_a_column_for_each_size() -> None:
    lines = table([figures(100, 1, 5), figures(5000, 30, 5)]).splitlines()
    assert lines[0].split() == ["nodes", "100", "5,000"]
    (follows,) = [line for line in lines if "node follows" in line]
    assert follows.split()[-6:] == ["2.0", "/", "100.0", "2.0", "/", "5000.0"]
