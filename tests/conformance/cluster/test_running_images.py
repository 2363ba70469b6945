"""Which images run on a node, and from whose sources they were built."""

from typing import Any

import pytest

from conformance.cluster.running_images import images_by_node, rolled_out_to

IMAGE = "r/divvy/agent@sha256:1"


def pod(component: str, image: str = IMAGE, **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"labels": {"app.kubernetes.io/component": component}, **metadata},
        "spec": {"nodeName": "n", "containers": [{"image": image}]},
        "status": {"containerStatuses": [{"imageID": image}]},
    }


def test_reads_the_image_of_each_component_of_a_node() -> None:
    leaving = pod("agent", "old", deletionTimestamp="now")
    pods = [leaving, pod("agent"), pod("node-runtime"), pod("claims")]
    assert images_by_node(pods) == {
        "n": {"agent": (IMAGE, "sha256:1"), "node-runtime": (IMAGE, "sha256:1")}
    }


@pytest.mark.parametrize(
    ("pods", "build", "sources", "words"),
    [
        ([pod("agent")], "abc", "abc", ""),
        ([pod("agent")], "", None, ""),
        ([pod("agent", "old")], "abc", "abc", "old in agent"),
        ([pod("agent"), pod("node-runtime", "old")], "abc", "abc", "old in node-runtime"),
        ([pod("agent")], "old", "abc", "built from other sources (old)"),
        ([pod("agent")], "", "abc", "from sources that it does not name"),
        ([], "abc", "abc", "no agent on the node"),
    ],
)
def test_names_the_pod_that_runs_another_image(
    pods: list[Any], build: str, sources: str | None, words: str
) -> None:
    expected, actual = rolled_out_to(images_by_node(pods).get("n", {}), IMAGE, build, sources)
    assert (expected == actual) == (not words)
    assert words in actual
