"""What divvy diff --live reads from a Node."""

import io
import json

from rich.console import Console

from divvy.live.advertised import live_node_of
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
