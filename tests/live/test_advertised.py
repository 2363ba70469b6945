"""What divvy diff --live reads from a Node."""

import io
import json

import httpx2
import pytest
from rich.console import Console

from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.live.advertised import live_node_of
from divvy.live.cluster_reader import ClusterReader
from divvy.live.live_diff import compare_live
from divvy.model import parse_cluster
from divvy.render.views.live_diff import live_text


def node(annotation=None, allocatable=None):
    annotations = {} if annotation is None else {"divvy.gpu/status": annotation}
    return {
        "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": annotations},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def test_reads_only_extended_resources_as_numbers():
    live = live_node_of(
        node(allocatable={"cpu": "8", "memory": "1Ki", "nvidia.com/gpu": "4", "hugepages-2Mi": "0"})
    )
    assert live.allocatable == {"nvidia.com/gpu": 4}
    assert (live.name, live.labels, live.state) == ("n", {"a": "b"}, None)


def test_reads_the_agents_status():
    live = live_node_of(node('{"state":"Waiting","reason":"GPU 0: held","gpus":[]}'))
    assert (live.state, live.reason) == ("Waiting", "GPU 0: held")


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_reports_a_damaged_status(text):
    live = live_node_of(node(text))
    assert live.state == "Unknown"
    assert "cannot be read" in live.reason


POD = {n: {"metadata": {"name": f"p{n}"}, "spec": {}} for n in (1, 2)}


def test_reads_on_after_a_busy_server_and_an_expired_page(monkeypatch):
    monkeypatch.setattr("divvy.kube.client.time.sleep", lambda _: None)
    busy = httpx2.Response(429, json={"message": "too many"}, headers={"Retry-After": "1"})
    first = {"metadata": {"continue": "old"}, "items": [POD[1]]}
    expired = {"code": 410, "message": "too old", "metadata": {"continue": "fresh"}}
    last = {"metadata": {}, "items": [POD[2]]}
    answers = [
        busy,
        httpx2.Response(200, json=first),
        httpx2.Response(410, json=expired),
        httpx2.Response(200, json=last),
    ]
    transport = httpx2.MockTransport(lambda _: answers.pop(0))
    with Client(ClusterConfig("https://here:1"), transport=transport) as client:
        assert list(ClusterReader(client).paged("/api/v1/pods")) == [*POD.values()]


def test_reports_a_node_that_is_not_ready_as_different():
    condition = {"type": "Ready", "status": "Unknown", "lastTransitionTime": "03:00"}
    dead = node('{"state":"Ready","gpus":[{}]}', allocatable={"nvidia.com/gpu": "1"})
    dead["metadata"]["labels"] = {"pool": "p"}
    sound = json.loads(json.dumps(dead))
    dead["status"]["conditions"] = [condition]
    cluster = parse_cluster(
        {
            "profiles": {"whole": {}},
            "pools": {
                "p": {
                    "select": {"pool": "p"},
                    "profile": "whole",
                    "hardware": {"model": "A10", "gpus": 1, "count": 1},
                }
            },
        }
    )
    assert not compare_live(cluster, "c", [live_node_of(sound)])
    difference = compare_live(cluster, "c", [live_node_of(dead)])
    (line,) = difference.nodes
    assert line.unavailable == "NotReady since 03:00: no reason given"
    out = io.StringIO()
    Console(file=out, width=200).print(live_text(difference))
    assert "NotReady since 03:00: no reason given; the values below are from before that" in (
        out.getvalue()
    )
