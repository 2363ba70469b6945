"""Whose report says that an upgraded node is Ready: one of its new programs alone."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.cluster import lifecycle
from lab.cluster.api import ReadyNode
from lab.cluster.description import DEFAULT_KUBERNETES
from lab.cluster.machine import Machine
from lab.cluster.section import parse_lab
from lab.cluster.tools import KUBERNETES_VERSIONS

pytestmark = pytest.mark.pure


def _second() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


class Node:
    """A node whose kubelet reports to its last instant, and while containerd is replaced."""

    def __init__(self, needs_boot: bool) -> None:
        self.boots = needs_boot
        self.runs = True
        self.reported = _second()
        # One for each look: the first one is the old kubelet's last.
        self.runtimes = ["2.3.7", "2.2.0", "Unknown", "2.3.7"]

    def outdated(self) -> bool:
        return True

    def needs_boot(self) -> bool:
        return self.boots

    def running(self) -> bool:
        return self.runs

    def shut_down(self) -> None:
        self.runs, self.reported = False, _second()

    def upgrade(self) -> None:
        assert self.runs != self.boots
        self.runs = True

    def ready_nodes(self) -> dict[str, ReadyNode]:
        runtime = f"containerd://{self.runtimes.pop(0)}"
        ready = ReadyNode(self.reported, (KUBERNETES_VERSIONS[DEFAULT_KUBERNETES], runtime))
        self.reported = _second()
        return {"gpu-1": ready}


@pytest.mark.parametrize("needs_boot", [False, True])
def test_takes_the_first_report_of_what_is_new_and_none_of_what_is_old(
    needs_boot: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """API objects have whole seconds only, and the old one may report until its last instant."""
    lab = parse_lab({"nodes": [{"name": "gpu-1"}]})
    machine, node = Machine(lab, lab.nodes[0]), Node(needs_boot)
    machine.directory = tmp_path
    for name in ("outdated", "needs_boot", "running", "shut_down", "upgrade"):
        monkeypatch.setattr(machine, name, getattr(node, name))
    monkeypatch.setattr(lifecycle, "Machine", lambda _lab, _node: machine)
    monkeypatch.setattr(lifecycle, "Api", lambda _lab: node)
    monkeypatch.setattr(lifecycle, "_alone", contextlib.nullcontext)
    for name in (
        *("_check_machine", "_build_releases", "_build_driver", "running_lab", "_check_upgrade"),
        *("write_private", "control_plane.upgrade"),
    ):
        monkeypatch.setattr(f"lab.cluster.lifecycle.{name}", lambda *_: None)
    lifecycle.upgrade(lab, print, drain=False, patience=5)
    assert node.runtimes == []
