"""What a command makes of a lab that another one, or another version, is starting or has left."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from lab.cluster import lifecycle, status
from lab.cluster.errors import LabFailed
from lab.cluster.section import parse_lab

LAB = parse_lab({"nodes": [{"name": "n"}]})


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the lab's folder, with no lab in it."""
    folder = tmp_path / "divvy-lab"
    monkeypatch.setattr(lifecycle, "STATE", folder)
    monkeypatch.setattr(lifecycle, "_DESCRIPTION", folder / "description.json")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


@pytest.mark.parametrize(
    "kept", ["", "{", "[]", "{}", json.dumps({**LAB.document(), "ports": {"x": 1}})]
)
def test_names_the_way_out_of_a_lab_of_another_version(kept: str, state: Path) -> None:
    state.mkdir()
    (state / "description.json").write_text(kept)
    with pytest.raises(LabFailed) as refused:
        lifecycle.running_lab()
    assert str(refused.value) == (
        "the lab that is up was started by another version of Divvy: run divvy lab down first"
    )


def test_shows_a_lab_that_has_no_certificates_yet(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state.mkdir()
    (state / "description.json").write_text(json.dumps(LAB.document()))
    monkeypatch.setattr("lab.cluster.api.PKI", tmp_path / "none")
    monkeypatch.setattr("lab.cluster.machine.node_state", lambda name: tmp_path / name)
    monkeypatch.setattr("lab.cluster.processes.find", lambda _component: None)
    lines, complete = status.report()
    assert not complete
    assert lines[1:] == [
        *(f"{name:<26} does not run" for name in (*status.HOST_COMPONENTS, "node n")),
    ]


def test_leaves_the_folder_of_the_command_that_it_waits_for(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_descriptor: int, _operation: int) -> None:
        raise KeyboardInterrupt

    with lifecycle._alone():
        monkeypatch.setattr(fcntl, "flock", interrupt)
        with pytest.raises(KeyboardInterrupt), lifecycle._alone():
            pytest.fail("two commands at once")
        assert state.is_dir()
    assert not state.exists()


def test_has_no_logs_of_a_node_that_was_not_started(state: Path) -> None:
    # `tail` without a file would read the terminal.
    state.mkdir()
    (state / "description.json").write_text(json.dumps(LAB.document()))
    with pytest.raises(LabFailed, match="n has no logs yet: it has not been started"):
        status.log_files("n", None)
