"""What a wait for the nodes ends with."""

from __future__ import annotations

import json
from itertools import chain, repeat
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import pytest

import divvy.cli.node_wait
import divvy.live.advertised
from divvy.cli.node_wait import wait_advertised
from divvy.model import Cluster
from divvy.model.api_names import STATUS_ANNOTATION
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


@pytest.fixture
def waits(api: ClusterApi) -> list[dict[str, Any]]:
    """Give the file's nodes, one of which has an agent that waits and offers nothing yet."""
    (first,) = api.lists["/api/v1/nodes"]
    second = json.loads(json.dumps(first).replace('"n1"', '"n2"'))
    status = {"state": "Waiting", "reason": "the kubelet has not written its checkpoint"}
    second["metadata"]["annotations"] = {STATUS_ANNOTATION: json.dumps(status)}
    second["status"]["allocatable"] = {}
    return [first, second]


def test_waits_for_an_agent_that_has_just_started(
    api: ClusterApi, cluster: Cluster, waits: list[dict[str, Any]]
) -> None:
    (first,) = api.lists["/api/v1/nodes"]
    started = [first, json.loads(json.dumps(first).replace('"n1"', '"n2"'))]
    answers = chain([waits] * 2, repeat(started))
    api.lists["/api/v1/nodes"] = lambda: httpx2.Response(
        200, json={"metadata": {}, "items": next(answers)}
    )
    assert not wait_advertised(cluster, "prod", print).differs


def test_does_not_wait_to_the_end_for_what_pods_hold(
    api: ClusterApi,
    cluster: Cluster,
    waits: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(divvy.cli.node_wait, "_STEADY", 0.3)
    api.lists["/api/v1/nodes"] = waits
    began = monotonic()
    assert wait_advertised(cluster, "prod", print).differs
    assert 0.3 < monotonic() - began < 20


@pytest.mark.parametrize("there", [0, 1])
def test_does_not_take_nodes_that_are_not_there_for_as_planned(
    api: ClusterApi, cluster: Cluster, there: int
) -> None:
    api.lists["/api/v1/nodes"] = api.lists["/api/v1/nodes"][:there]
    ended = wait_advertised(cluster, "prod", print)
    assert "the file says 2" in ended.words
    assert "advertise what the plan says" not in ended.words
