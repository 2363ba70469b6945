"""What the suite reads of the API: an object that cannot be read is named, not absent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from conformance.checks.verdicts import nodes_amiss
from conformance.cluster.api import Api
from conformance.observe.claims import claimed_now
from divvy.kube.client import Client
from divvy.kube.kind import NODE, RESOURCE_CLAIM
from divvy.kube.kubeconfig import ClusterConfig
from divvy.live.live_diff import compare_live, unread_node
from divvy.model import parse_cluster
from tests.conformance.promised_nodes import CLUSTER
from tests.plan.claimed import slices

_API = "/apis/resource.k8s.io/v1"
ODD = {"metadata": {"name": "odd", "namespace": "team", "labels": 5}}


def api(lists: dict[str, Any]) -> Api:
    def answer(request: httpx2.Request) -> httpx2.Response:
        items = lists.get(request.url.path)
        if items is None:
            return httpx2.Response(404, json={"message": "not found"})
        return httpx2.Response(200, json={"items": items, "metadata": {}})

    return Api(Client(ClusterConfig("http://api"), transport=httpx2.MockTransport(answer)))


def test_names_what_cannot_be_read() -> None:
    sound = {"metadata": {"name": "n1"}}
    reader = api({"/api/v1/nodes": [sound, ODD]})
    assert reader.find_whole(NODE) == ([sound], ("team/odd",))
    assert reader.find_whole(RESOURCE_CLAIM) == ([], ())
    assert reader.find_known(RESOURCE_CLAIM) == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_reads_claims_of_a_server_that_has_only_an_earlier_version(version: str) -> None:
    """Else a pod that holds a GPU by a claim holds nothing, and is disturbed."""
    held = {"metadata": {"name": "c", "namespace": "team"}, "spec": {}}
    reader = api({f"/apis/resource.k8s.io/{version}/resourceclaims": [held]})
    assert reader.find_whole(RESOURCE_CLAIM) == ([held], ())


@pytest.mark.parametrize("driver", [None, "gpu.example"])
def test_takes_a_gpu_for_held_by_a_claim_that_cannot_be_read(driver: str | None) -> None:
    published = [
        {"metadata": {"name": f"s{number}"}, "spec": {**item["spec"]}}
        for number, item in enumerate(slices("n1", {}, gpus=1))
    ]
    if driver is not None:
        device = {
            "name": "gpu-0",
            "attributes": {"type": {"string": "gpu"}},
            "capacity": {"memory": {"value": "40Gi"}},
        }
        published[-1]["spec"] |= {"driver": driver, "devices": [device]}
    lists = {f"{_API}/resourceslices": published, f"{_API}/resourceclaims": [ODD]}
    implementation = SimpleNamespace(dra_driver=driver)
    target: Any = SimpleNamespace(api=api(lists), implementation=implementation)
    node: Any = SimpleNamespace(name="n1")
    (gpu,) = claimed_now(target, node)
    assert [holder.words for _, holder in gpu.holders] == [
        "claim team/odd (of what cannot be read)"
    ]


def test_reports_a_node_that_cannot_be_read_among_those_of_no_pool() -> None:
    difference = compare_live(parse_cluster(CLUSTER), "prod", [unread_node("odd")])
    (words,) = nodes_amiss(difference, None)
    assert words.startswith("odd: its object in the API cannot be read")
