"""Which nodes the agent's image is not for."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import Cluster, parse_cluster
from divvy.plan.predict.image_platforms import lacking_platform

DIGEST = f"r.example/agent@sha256:{'0' * 64}"
AMD64, ARM64 = "linux/amd64", "linux/arm64"


def cluster(image: dict[str, Any], **pool: Any) -> Cluster:
    pools = {"grace": {"profile": "p", "select": {"gpu": "grace"}, **pool}}
    return parse_cluster({"profiles": {"p": {}}, "pools": pools, "plugin": {"image": image}})


BUILT = cluster({"registry": "r.example/gpus", "base": "r.example/base"})
GIVEN = cluster({"reference": DIGEST})


def node(name: str, architecture: str, taint: str = "", **labels: str) -> dict[str, Any]:
    taints = [{"key": taint, "effect": "NoSchedule"}] if taint else []
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"nodeInfo": {"architecture": architecture}},
    }


def test_names_the_nodes_that_an_image_is_not_for() -> None:
    nodes = [node(f"gh-{number}", "arm64", gpu="grace") for number in range(5)]
    assert lacking_platform(BUILT, [AMD64], nodes) == (
        "pools.grace: nodes gh-0, gh-1, gh-2 and 2 more: need an image for linux/arm64, and the "
        "agent's is for linux/amd64: add linux/arm64 to plugin.image.platforms"
    )
    assert lacking_platform(GIVEN, [AMD64], nodes[:1]) == (
        "pools.grace: nodes gh-0: need an image for linux/arm64, and the agent's is for linux/amd64"
        ": name one that is for linux/arm64, too, in plugin.image.reference"
    )
    assert lacking_platform(BUILT, [AMD64, ARM64], nodes) is None


@pytest.mark.parametrize(
    "other",
    [
        node("of-no-pool", "arm64"),
        node("of-amd64", "amd64", gpu="grace"),
        node("without-agents", "arm64", "node-role.kubernetes.io/control-plane", gpu="grace"),
        {"metadata": {"name": "new", "labels": {"gpu": "grace"}}},
    ],
)
def test_ignores_nodes_without_agents_or_with_processors_that_suit(other: dict[str, Any]) -> None:
    assert lacking_platform(BUILT, [AMD64], [other]) is None


def test_counts_a_node_that_is_cordoned_or_not_ready_yet() -> None:
    late = node("gh-0", "arm64", "node.kubernetes.io/not-ready", gpu="grace")
    assert lacking_platform(BUILT, [AMD64], [late]) is not None


def test_counts_what_the_stack_file_says_of_nodes_that_are_not_there_yet() -> None:
    hardware = {"model": "GB200", "gpus": 4, "count": 18}
    expected = cluster({"reference": DIGEST}, hardware=hardware)
    problem = lacking_platform(expected, [AMD64], [])
    assert problem is not None
    assert problem.startswith("pools.grace: GB200: need an image for linux/arm64")
    assert lacking_platform(expected, [ARM64], []) is None
