"""A node is drained for an upgrade, which may be interrupted and taken up again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from lab.cluster import lifecycle
from lab.cluster.machine import Machine
from lab.cluster.section import parse_lab

pytestmark = pytest.mark.pure


class Cluster:
    """A node as kubectl sees it."""

    cordoned = False

    def kubectl(self, _lab: object, *arguments: str) -> str:
        if arguments[0] in ("drain", "uncordon"):
            self.cordoned = arguments[0] == "drain"
        return "true" if self.cordoned and arguments[0] == "get" else ""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(lifecycle, "_kubectl", cluster.kubectl)
    return cluster


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    lab = parse_lab({"nodes": [{"name": "gpu-1"}]})
    machine = Machine(lab, lab.nodes[0])
    machine.directory = tmp_path
    return machine


def test_leaves_no_cordon_behind_when_interrupted(cluster: Cluster, machine: Machine) -> None:
    with pytest.raises(KeyboardInterrupt), lifecycle._drained(machine):
        raise KeyboardInterrupt
    assert not cluster.cordoned
    assert list(machine.directory.iterdir()) == []


@pytest.mark.parametrize("outdated", [True, False])
@pytest.mark.parametrize("drain", [True, False])
def test_takes_its_own_cordon_away_after_a_kill(
    outdated: bool,
    drain: bool,
    cluster: Cluster,
    machine: Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = lifecycle._drained(machine)
    killed.__enter__()
    assert cluster.cordoned
    # The next upgrade finds the node before or after the exchange of its programs.
    monkeypatch.setattr(machine, "outdated", lambda: outdated)
    monkeypatch.setattr(machine, "upgrade", lambda: None)
    monkeypatch.setattr(machine, "needs_boot", lambda: False)
    monkeypatch.setattr(lifecycle, "Machine", lambda _lab, _node: machine)
    monkeypatch.setattr(lifecycle, "_alone", contextlib.nullcontext)
    for name in (
        *("_check_machine", "_build_releases", "_build_driver", "running_lab", "_check_upgrade"),
        *("write_private", "Api", "control_plane.upgrade", "_wait_nodes"),
    ):
        monkeypatch.setattr(f"lab.cluster.lifecycle.{name}", lambda *_: None)
    lifecycle.upgrade(machine.lab, print, drain)
    assert not cluster.cordoned
    assert list(machine.directory.iterdir()) == []


def test_leaves_an_administrators_cordon(cluster: Cluster, machine: Machine) -> None:
    cluster.cordoned = True
    with lifecycle._drained(machine):
        pass
    assert cluster.cordoned
