"""The comparison with live nodes."""

import json
from io import StringIO

import pytest
from rich.console import Console

from divvy.live.live_diff import LiveNode, compare_live, live_node, unread_node
from divvy.model import parse_cluster
from divvy.model.api_names import STATUS_ANNOTATION
from divvy.render.views.live_diff import live_text
from tests.plugin_stack import without_claims
from tests.render.chart.charts import example

GOOD = {
    "gpu-a100": {
        "nvidia.com/gpu": 1,
        "nvidia.com/gpu.shared": 6,
        "nvidia.com/mig-1g.5gb": 4,
        "nvidia.com/mig-2g.10gb": 2,
        "nvidia.com/mig-3g.20gb": 2,
    },
    "gpu-h100": {"nvidia.com/gpu": 2},
    "gpu-t4": {"nvidia.com/gpu.shared": 8},
}


def node(name, allocatable=None, state="Ready", reason="", **labels):
    kind = {"node.kubernetes.io/instance-type": name}
    counts = GOOD.get(name, {}) if allocatable is None else allocatable
    return LiveNode(name, {**kind, **labels}, counts, state, reason)


def compared(*nodes):
    return compare_live(parse_cluster(without_claims(example("lab"))), "lab", nodes)


def test_accepts_a_cluster_that_matches_its_file():
    difference = compared(*map(node, GOOD), node("cpu-1", {}, state=None))
    assert not difference
    assert difference.compared == 3


def test_reports_wrong_counts_but_not_stale_zeros():
    h100 = node("gpu-h100", {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 0, "other.org/x": 3})
    (node_difference,) = compared(node("gpu-a100"), h100, node("gpu-t4")).nodes
    assert [(row.resource, row.before, row.after) for row in node_difference.resources] == [
        ("nvidia.com/gpu", 1, 2)
    ]


def test_reports_a_label_that_bypasses_the_file_though_the_counts_fit():
    labels = {"divvy.gpu/profile": "slice-4"}
    h100 = node("gpu-h100", {"nvidia.com/gpu.shared": 8}, **labels)
    (node_difference,) = compared(node("gpu-a100"), h100, node("gpu-t4")).nodes
    assert node_difference.bypass == "divvy.gpu/profile=slice-4"
    assert node_difference.resources == ()


def test_reports_an_unknown_profile_label():
    h100 = node("gpu-h100", **{"divvy.gpu/profile": "slice4"})
    (node_difference,) = compared(node("gpu-a100"), h100, node("gpu-t4")).nodes
    assert "did you mean slice-4?" in node_difference.problem
    assert node_difference.resources == ()


def test_reports_a_node_that_cannot_be_read():
    nodes = [node("gpu-a100"), node("gpu-h100"), node("gpu-t4")]
    assert not compared(*nodes)
    difference = compared(*nodes, unread_node("other"))
    (line,) = difference.nodes
    assert (line.node, line.pool) == ("other", None)
    assert "cannot be read" in line.unavailable
    assert difference.counts == ()


def test_reports_missing_nodes_and_unhappy_agents():
    t4 = node("gpu-t4", state="Blocked", reason="GPU 0: held by pod x")
    difference = compared(node("gpu-a100"), t4)
    (count,) = difference.counts
    assert (count.pool, count.actual, count.expected) == ("training", 0, 1)
    (node_difference,) = difference.nodes
    assert (node_difference.state, node_difference.reason) == ("Blocked", "GPU 0: held by pod x")


def test_reports_an_override_that_names_no_node_of_its_pool():
    """A mistyped name: every node of the pool keeps the pool's profile."""
    value = without_claims(example("lab"))
    value["pools"]["training"]["overrides"] = {"gpu-h10": "slice-4"}
    value["pools"]["notebooks"]["overrides"] = {"gpu-h100": "whole"}
    nodes = list(map(node, GOOD))
    difference = compare_live(parse_cluster(value), "lab", nodes)
    assert [node_difference.node for node_difference in difference.nodes] == []
    mistyped, elsewhere = difference.unknown_overrides
    out = StringIO()
    Console(file=out, width=100).print(live_text(difference))
    assert "0 of 3 nodes differ, and 2 overrides name no node" in out.getvalue()
    assert "node gpu-h10: pool training" in out.getvalue()
    assert (mistyped.node, mistyped.pool, mistyped.profile) == ("gpu-h10", "training", "slice-4")
    assert mistyped.problem == "`overrides` names it, and the pool has no node of this name"
    assert (elsewhere.node, elsewhere.pool) == ("gpu-h100", "notebooks")


def test_ignores_a_node_that_left_every_pool():
    """The kubelet keeps the names of what it advertised, with 0 devices."""
    left = node("gpu-l40s", {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 0}, state=None)
    assert not compared(*map(node, GOOD), left)


def test_reports_gpus_outside_every_pool():
    difference = compared(*map(node, GOOD), node("other", {"nvidia.com/gpu": 4}, state=None))
    (node_difference,) = difference.nodes
    assert node_difference.problem == "no pool of the stack file selects it"


CLAIMED = parse_cluster(
    {
        "profiles": {"sizes": {"claims": {"shares": {}}}},
        "pools": {
            "sizes": {
                "select": {"pool": "sizes"},
                "hardware": {"model": "A100-SXM4-40GB", "gpus": 2, "count": 1},
                "profile": "sizes",
            }
        },
    }
)


def _claimed(allocatable: dict, claimable: dict) -> LiveNode:
    return LiveNode("n", {"pool": "sizes"}, allocatable, "Ready", "", 2, claimable)


def test_accepts_a_claims_node_that_advertises_nothing():
    offered = {"nvidia.com/gpu (claims)": 2, "nvidia.com/gpu.shared (claims)": 2}
    assert not compare_live(CLAIMED, "s", [_claimed({}, offered)])
    assert not compare_live(CLAIMED, "s", [_claimed({"nvidia.com/gpu": 0}, offered)])


def test_reports_gpus_that_claims_lack():
    (node,) = compare_live(CLAIMED, "s", [_claimed({"nvidia.com/gpu": 2}, {})]).nodes
    assert [(row.resource, row.before, row.after) for row in node.resources] == [
        ("nvidia.com/gpu", 2, 0),
        ("nvidia.com/gpu (claims)", 0, 2),
        ("nvidia.com/gpu.shared (claims)", 0, 2),
    ]


@pytest.mark.parametrize("text", ["[" * 100_000, '{"gpus": 5}', "[]", "{", "", "3"])
def test_reports_a_status_that_no_agent_wrote_as_unreadable(text: str) -> None:
    live = live_node("n", {}, {STATUS_ANNOTATION: text}, {})
    assert (live.state, live.gpus) == ("Unknown", 0)
    assert live.reason == "annotation divvy.gpu/status cannot be read"


def test_escapes_a_status_for_the_terminal() -> None:
    status = json.dumps({"state": "\x1b[2J", "reason": "\x1b]0;x\x07"})
    live = live_node("n", {}, {STATUS_ANNOTATION: status}, {})
    assert (live.state, live.reason) == ("\ufffd[2J", "\ufffd]0;x\ufffd")
