"""What a look at the cluster's objects makes of those of others, and of missing rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from divvy.deploy.changes import ObjectName, Release
from divvy.deploy.live_objects import delete_owned, preview_objects
from divvy.deploy.rights import missing_rights
from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig

OWN = Release("divvy", "divvy-system")
LABELS = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/managed-by": "Helm"}
NVIDIAS = {"app.kubernetes.io/managed-by": "Helm"}
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "divvy-gpu", "labels": LABELS},
}


def released(namespace: str) -> dict[str, Any]:
    """Return the class as a release of this namespace has it."""
    marks = {
        "meta.helm.sh/release-name": "divvy",
        "meta.helm.sh/release-namespace": namespace,
    }
    return {**CLASS, "metadata": {**CLASS["metadata"], "annotations": marks, "uid": "u"}}  # type: ignore[dict-item]


class Cluster:
    """An API server with one class, and users who may not do everything."""

    def __init__(self) -> None:
        self.live = released("first")
        self.denied: set[tuple[str, str]] = set()
        self.is_served = True
        self.is_slow = False

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/selfsubjectaccessreviews"):
            asked = json.loads(request.content)["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in self.denied
            return httpx2.Response(201, json={"status": {"allowed": allowed}})
        if not self.is_served:
            return httpx2.Response(404, text="404 page not found")
        if self.is_slow and request.method == "PATCH":
            raise httpx2.ReadTimeout("timed out")
        return httpx2.Response(200, json=self.live)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    transport = httpx2.MockTransport(cluster.answer)
    with Client(ClusterConfig("https://api.example"), transport=transport) as http:
        yield http


def test_takes_over_what_a_lost_release_of_the_same_namespace_has_left(
    cluster: Cluster, client: Client
) -> None:
    cluster.live = released(OWN.namespace)
    other = Release("gpus", OWN.namespace)
    preview = preview_objects(client, other, [CLASS], [], take_over=True, namespace_exists=True)
    assert preview.others == frozenset()


@pytest.mark.parametrize(
    ("labels", "take_over", "words"),
    [
        (NVIDIAS, False, "over with --take-over"),
        (NVIDIAS, True, ""),
        (LABELS, True, "nothing is taken over"),  # of a Divvy in another namespace
    ],
)
def test_takes_nvidias_classes_over_only_when_told_and_only_from_nvidia(
    cluster: Cluster, client: Client, labels: dict[str, str], take_over: bool, words: str
) -> None:
    live = released("first")
    metadata = {**live["metadata"], "name": "gpu.nvidia.com", "labels": labels}
    cluster.live = {**live, "metadata": metadata}
    wanted = {**CLASS, "metadata": {"name": "gpu.nvidia.com", "labels": LABELS}}
    preview = preview_objects(client, OWN, [wanted], [], take_over=take_over, namespace_exists=True)
    assert words in "".join(preview.problems)
    assert bool(preview.problems) is bool(words)


def test_an_object_of_a_kind_that_is_gone_is_gone(cluster: Cluster, client: Client) -> None:
    cluster.is_served = False
    gone = [ObjectName.of(CLASS)]
    preview = preview_objects(client, OWN, [], gone, take_over=False, namespace_exists=True)
    assert (preview.changes, preview.unknown) == ((), ())
    assert delete_owned(client, OWN, gone) == []
    (problem,) = preview_objects(
        client, OWN, [CLASS], [], take_over=False, namespace_exists=False
    ).problems
    assert problem.startswith("the cluster has no DeviceClass (resource.k8s.io/v1)")


def test_names_the_object_that_is_not_answered_in_time(cluster: Cluster, client: Client) -> None:
    """As behind a webhook: the cluster can be reached."""
    cluster.live = released(OWN.namespace)
    cluster.is_slow = True
    preview = preview_objects(client, OWN, [CLASS], [], take_over=False, namespace_exists=True)
    (problem,) = preview.problems
    assert problem.startswith("the cluster does not say in time what it makes of DeviceClass divvy")


@pytest.mark.parametrize(
    ("verb", "resource"), [("create", "leases"), ("update", "secrets"), ("delete", "secrets")]
)
def test_names_what_a_user_may_not_write_beside_the_objects(
    cluster: Cluster, client: Client, verb: str, resource: str
) -> None:
    assert list(missing_rights(client, "gpus")) == []
    cluster.denied = {(verb, resource)}
    assert list(missing_rights(client, "gpus")) == [
        f"this user may not {verb} {resource} in namespace gpus"
    ]
