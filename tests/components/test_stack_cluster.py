"""The cluster of a stack file, as the program reads it with language hosts of any release."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from divvy.components import stack_cluster
from divvy.model import InvalidCluster
from divvy.model.problems import problem

CLUSTER = {"pools": {}}
INVALID = InvalidCluster([problem(("pools",), "is empty", "add a pool")])


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with a language host that does not say where the project is."""
    monkeypatch.setattr(pulumi, "get_stack", lambda: "prod")
    monkeypatch.setattr(pulumi, "get_root_directory", lambda: None)


def configure(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    def require_object(_config: pulumi.Config, key: str) -> Any:
        if value is None:
            raise pulumi.ConfigMissingError(f"divvy:{key}", secret=False)
        return value

    monkeypatch.setattr(pulumi.Config, "require_object", require_object)


def test_makes_the_cluster_where_the_projects_folder_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, CLUSTER)
    monkeypatch.setattr(stack_cluster, "GpuCluster", lambda *arguments: arguments)
    assert stack_cluster.cluster_of_stack() == ("prod", {"cluster": CLUSTER}, None)


def test_reports_an_invalid_cluster_without_lines_where_the_projects_folder_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_arguments: Any) -> None:
        raise INVALID

    configure(monkeypatch, CLUSTER)
    monkeypatch.setattr(stack_cluster, "GpuCluster", refuse)
    with pytest.raises(pulumi.RunError, match="pools: is empty; add a pool"):
        stack_cluster.cluster_of_stack()


def test_reports_a_missing_cluster_where_the_projects_folder_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, None)
    with pytest.raises(pulumi.ConfigMissingError):
        stack_cluster.cluster_of_stack()
