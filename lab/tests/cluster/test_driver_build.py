"""The simulator is built before a node is started, never within the node's start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lab.cluster import driver, lifecycle, simulated_driver
from lab.cluster.description import Lab
from lab.cluster.machine import Machine
from lab.cluster.section import parse_lab


@pytest.fixture
def described() -> Lab:
    return parse_lab({"nodes": [{"name": "gpu-1", "model": "T4"}]})


def test_installs_on_a_node_what_was_built(
    described: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def build() -> Path:
        raise AssertionError("a node builds")

    monkeypatch.setattr(simulated_driver, "build", build)
    monkeypatch.setattr(simulated_driver, "_nodes", lambda *_: None)
    # Of the driver's own work, all but the daemon's start.
    started: list[Any] = []
    monkeypatch.setattr(simulated_driver, "_libraries", lambda built, *_: started.append(built))
    monkeypatch.setattr(simulated_driver, "_programs", lambda built, *_: started.append(built))
    monkeypatch.setattr(simulated_driver, "_links", lambda *_: None)
    (tmp_path / "etc").mkdir()
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/divvy-simd").write_text("#!/bin/sh\n")
    (tmp_path / "usr/bin/divvy-simd").chmod(0o755)
    monkeypatch.setattr(driver, "_MIG_MODES", tmp_path / "kept/modes")
    driver.install(described.nodes[0], tmp_path)
    assert set(started) == {simulated_driver.SOURCE / "build"}


def test_restarts_a_node_after_the_build(described: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    class Reached(Exception):
        pass

    def build() -> Path:
        raise Reached

    monkeypatch.setattr(simulated_driver, "build", build)
    with pytest.raises(Reached):
        lifecycle.restart_node(Machine(described, described.nodes[0]), tell=print)
