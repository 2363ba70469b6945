"""What divvy diff --live reads from a Node."""

import json

import pytest

from divvy.cli.cluster_reader import reading
from divvy.cli.errors import CommandError
from divvy.cli.live import live_node_of
from divvy.plan.live_claims import UnreadableClaims


def node(annotation=None, allocatable=None):
    annotations = {} if annotation is None else {"divvy.gpu/status": annotation}
    return {
        "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": annotations},
        "status": {"allocatable": allocatable},
    }


def test_extended_resources_are_read_as_numbers_and_the_rest_is_not():
    found = live_node_of(
        node(allocatable={"cpu": "8", "memory": "1Ki", "nvidia.com/gpu": "4", "hugepages-2Mi": "0"})
    )
    assert found.allocatable == {"nvidia.com/gpu": 4}
    assert (found.name, found.labels, found.state) == ("n", {"a": "b"}, None)


def test_the_agents_status_is_read():
    found = live_node_of(node('{"state":"Waiting","reason":"GPU 0: held","gpus":[]}'))
    assert (found.state, found.reason) == ("Waiting", "GPU 0: held")


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_a_damaged_status_is_told(text):
    found = live_node_of(node(text))
    assert found.state == "Unknown"
    assert "cannot be read" in found.reason


def test_what_cannot_be_read_of_claims_is_one_error_of_the_command(tmp_path):
    config = {
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "current-context": "c",
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    with pytest.raises(CommandError, match="claim a/b"), reading(str(file), None):
        raise UnreadableClaims("claim a/b cannot be read")
