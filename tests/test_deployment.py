"""The tests' deployment: what a test changes in its stack file ends with the test."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from divvy.stack.file import read_path
from lab.cluster.paths import REPOSITORY
from lab.cluster.section import read_lab
from tests.deployment import Deployment
from tests.running_lab import RunningLab


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Give one whose lab runs nothing and holds nothing."""
    monkeypatch.setattr(RunningLab, "get", lambda *_: {"items": []})
    monkeypatch.setattr(RunningLab, "kubectl", lambda *_: "")
    lab = read_lab(read_path(REPOSITORY / "stacks/Pulumi.lab.yaml"))
    return Deployment(RunningLab(lab, tmp_path / "kubeconfig"), tmp_path)


@pytest.fixture
def deployed(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the stacks that were deployed, in their order."""
    stacks: list[dict[str, Any]] = []
    monkeypatch.setattr(
        deployment, "up", lambda: stacks.append(copy.deepcopy(deployment.cluster)), raising=False
    )
    return stacks


def test_restores_the_stack_whatever_a_test_changed(
    deployment: Deployment, deployed: list[dict[str, Any]]
) -> None:
    """A pool of claims that was moved to the device plugin has claims in the next test."""
    before = copy.deepcopy(deployment.cluster)
    for _ in range(2):
        with deployment.claims():
            deployment.up()
            deployment.set_profile("experiments", "whole")
            deployment.set_profile("training", "whole")
            deployment.cluster["change"] = {"policy": "wait"}
            deployment.cluster["profiles"]["by-size"] = {"claims": {"shares": {"max": 24}}}
        assert deployment.cluster == before
    with_claims, restored = deployed[0], deployed[1]
    assert with_claims["pools"]["experiments"]["profile"] == "on-demand"
    assert deployed == [with_claims, restored] * 2
    assert restored == before


def test_restores_the_stack_after_a_failure(
    deployment: Deployment, deployed: list[dict[str, Any]]
) -> None:
    before = copy.deepcopy(deployment.cluster)

    def fail() -> None:
        with deployment.claims():
            deployment.cluster = {"profiles": {}, "pools": {}}
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert deployment.cluster == before
    assert deployed == [before]
