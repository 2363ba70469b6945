"""What a wait for the nodes ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import divvy.live.advertised
from divvy.cli.node_wait import wait_advertised
from divvy.model import Cluster
from divvy.stack.file import read_path
from divvy.stack.sections import read_cluster
from tests.cli.cluster_api import ClusterApi, write_project


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterApi:
    write_project(tmp_path, monkeypatch)
    server = ClusterApi()
    server.serve(monkeypatch, divvy.live.advertised)
    return server


@pytest.fixture
def cluster(api: ClusterApi) -> Cluster:
    del api
    return read_cluster(read_path(Path("Pulumi.prod.yaml")))


def test_ends_when_all_nodes_of_the_file_advertise_the_plan(
    api: ClusterApi, cluster: Cluster
) -> None:
    (first,) = api.lists["/api/v1/nodes"]
    api.lists["/api/v1/nodes"].append(json.loads(json.dumps(first).replace('"n1"', '"n2"')))
    ended = wait_advertised(cluster, "prod", print)
    assert ended.words.startswith("the nodes advertise what the plan says, after")
    assert not ended.differs


@pytest.mark.parametrize("there", [0, 1])
def test_does_not_take_nodes_that_are_not_there_for_as_planned(
    api: ClusterApi, cluster: Cluster, there: int
) -> None:
    api.lists["/api/v1/nodes"] = api.lists["/api/v1/nodes"][:there]
    ended = wait_advertised(cluster, "prod", print)
    assert "the file says 2" in ended.words
    assert "advertise what the plan says" not in ended.words
