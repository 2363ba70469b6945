"""What the plan says of nodes that do not exist is enough for the stock scheduler to choose one.

A stand-in for an autoscaler: it knows `divvy plan -o slices` and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from divvy.cli.main import app
from tests.bare_cluster import bare_cluster
from tests.claim_templates.stock_scheduler import make_node, running_scheduler
from tests.render.objects.claims.api_server import ApiServer, policies_of

pytestmark = pytest.mark.lab
CLUSTER: dict[str, Any] = {
    "profiles": {
        "sliced": {"timeSlicing": {"replicas": 4}},
        "sized": {"claims": {"shares": {}}},
        "demand": {"claims": {"mig": ["1g.5gb", "3g.20gb"]}},
    },
    "pools": {
        name: {
            "select": {"pool": name},
            "profile": profile,
            "hardware": {"model": model, "gpus": 1, "count": 1},
        }
        for name, profile, model in (
            ("notebooks", "sliced", "T4"),
            ("sizes", "sized", "L40S"),
            ("experiments", "demand", "A100-SXM4-40GB"),
        )
    },
}
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Give a server with the stock scheduler and device classes, and no node."""
    with bare_cluster() as cluster:
        server = ApiServer(cluster)
        server.apply(*(item for item in policies_of(CLUSTER) if item["kind"] == "DeviceClass"))
        with running_scheduler(server, tmp_path_factory.mktemp("scheduler")):
            yield server
        server.close()


def run(server: ApiServer, name: str, container: dict[str, Any], **spec: Any) -> None:
    """Create a pod."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "image", **container}], **spec},
    }
    answer = server.send("POST", "/api/v1/namespaces/default/pods", pod)
    assert answer.status == 201, answer.body


def claim(server: ApiServer, name: str, device_class: str, memory: str = "") -> None:
    """Create a pod with a claim of its own."""
    exactly: dict[str, Any] = {"deviceClassName": device_class}
    if memory:
        exactly["capacity"] = {"requests": {"memory": memory}}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    answer = server.send("POST", CLAIMS, body)
    assert answer.status == 201, answer.body
    requested = {"resources": {"claims": [{"name": "gpu"}]}}
    run(server, name, requested, resourceClaims=[{"name": "gpu", "resourceClaimName": name}])


def node_of(server: ApiServer, name: str) -> str:
    """Return the node that the scheduler chose, "" if none fits."""
    pod = server.send("GET", f"/api/v1/namespaces/default/pods/{name}").body
    return str(pod["spec"].get("nodeName", ""))


def is_refused(server: ApiServer, name: str) -> bool:
    """Return whether the scheduler has looked at a pod and found no node."""
    pod = server.send("GET", f"/api/v1/namespaces/default/pods/{name}").body
    conditions = pod["status"].get("conditions", ())
    return any(condition.get("reason") == "Unschedulable" for condition in conditions)


def test_finds_the_node_yet_to_be_added_for_the_first_pod_of_each_kind(
    server: ApiServer, tmp_path: Path
) -> None:
    limits = {"nvidia.com/gpu.shared": "1"}
    run(server, "share", {"resources": {"limits": limits}})
    run(server, "shares", {"resources": {"limits": {"nvidia.com/gpu.shared": "5"}}})
    claim(server, "size", "divvy-share", "8Gi")
    claim(server, "too-large", "divvy-share", "100Gi")
    claim(server, "partition", "divvy-mig-3g.20gb")
    names = ("share", "shares", "size", "too-large", "partition")
    server.until(lambda: all(is_refused(server, name) for name in names))

    file = tmp_path / "Pulumi.zero.yaml"
    file.write_text(yaml.safe_dump({"config": {"divvy:cluster": CLUSTER}}))
    result = CliRunner().invoke(app, ["plan", "--file", str(file), "-o", "slices"])
    assert result.exit_code == 0, result.output
    for item in yaml.safe_load_all(result.output):
        if item["kind"] == "Node":
            make_node(server, item["metadata"]["name"], item["status"]["allocatable"])
        else:
            server.apply(item)

    expected = {"share": "notebooks", "size": "sizes", "partition": "experiments"}
    server.until(lambda: all(node_of(server, name) for name in expected))
    assert {name: node_of(server, name) for name in names} == {
        "share": "notebooks",
        "shares": "",
        "size": "sizes",
        "too-large": "",
        "partition": "experiments",
    }
