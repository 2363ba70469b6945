"""What a run notes on nodes that it found sound."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.cluster.node_success import note_success
from tests.conformance.fake_api import refusal


class Nodes:
    """An API server that refuses some nodes."""

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.noted: dict[str, str] = {}

    def patch(self, _kind: Any, name: str, patch: Any, **_: Any) -> None:
        if name in self.refused:
            raise refusal(self.refused[name], "nodes is forbidden")
        self.noted[name] = patch["metadata"]["annotations"]["divvy.gpu/conformance-success"]


def test_notes_the_time_on_each_remaining_node() -> None:
    nodes = Nodes(b=404)
    note_success(nodes, ["a", "b", "c"], 1764000000.7)  # type: ignore[arg-type]
    assert nodes.noted == {"a": "1764000001", "c": "1764000001"}


def test_reports_once_that_it_may_not_write(capsys: pytest.CaptureFixture[str]) -> None:
    nodes = Nodes(b=403)
    note_success(nodes, ["a", "b", "c"], 1.0)  # type: ignore[arg-type]
    assert list(nodes.noted) == ["a"]
    assert capsys.readouterr().err == "  no success is noted on nodes: nodes is forbidden\n"
