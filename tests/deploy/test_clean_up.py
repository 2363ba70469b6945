"""What ``divvy destroy`` gives back of nodes, with an API server of a test."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import divvy.deploy.clean_up as module
from divvy.deploy.clean_up import CleanUp, clean_up_pods, stays, written
from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.model import parse_cluster, parse_document
from divvy.render.objects.cluster import objects
from tests.render.chart.charts import IMAGE, example

NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/divvy-system/pods"
SETS = "/apis/apps/v1/namespaces/divvy-system/daemonsets"
AGENT = next(
    obj for obj in objects(parse_document(example("lab")), IMAGE) if obj["kind"] == "DaemonSet"
)
READY = {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01"}]}


def managed(manager: str, kind: str, *keys: str) -> dict[str, Any]:
    fields = {"f:metadata": {f"f:{kind}": {f"f:{key}": {} for key in keys}}}
    return {"manager": manager, "operation": "Update", "fieldsV1": fields}


def raw_node(name: str) -> dict[str, Any]:
    """Return a Node that an agent, GPU Feature Discovery and people have written to."""
    labels = {
        "nvidia.com/gpu.count": "2",
        "nvidia.com/gpu.product": "T4",
        "nvidia.com/mig.capable": "false",
        "team": "a",
    }
    return {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"divvy.gpu/status": "{}", "divvy.gpu/agent": "x/divvy", "note": "x"},
            "managedFields": [
                managed("divvy-agent", "labels", "nvidia.com/gpu.count", "nvidia.com/gpu.product"),
                managed("gfd", "labels", "nvidia.com/gpu.product", "nvidia.com/mig.capable"),
                managed("divvy-agent", "annotations", "divvy.gpu/status"),
                managed("kubectl", "labels", "team"),
            ],
        },
        "spec": {},
    }


class Api:
    """Two nodes with agents; a clean-up DaemonSet gets its pods at once, ready where told."""

    def __init__(self) -> None:
        self.nodes = {name: raw_node(name) for name in ("n1", "n2")}
        self.sets: dict[str, Any] = {"divvy-agent": copy.deepcopy(AGENT)}
        self.agents = [self.pod(f"divvy-agent-{name}", name, "agent") for name in self.nodes]
        self.cleaning: list[dict[str, Any]] = []
        self.ready = {"n1", "n2"}
        self.logs = {"n1": "INFO begins\n", "n2": "left: all files: GPUs are held by team/a\n"}
        self.forbidden: set[tuple[str, str]] = set()
        self.deleted: list[str] = []

    @staticmethod
    def pod(name: str, node: str, component: str) -> dict[str, Any]:
        labels = {"app.kubernetes.io/component": component}
        metadata = {"name": name, "namespace": "divvy-system", "labels": labels}
        return {"metadata": metadata, "spec": {"nodeName": node, "containers": []}, "status": {}}

    def start(self) -> None:
        self.cleaning = [self.pod(f"clean-{name}", name, "clean-up") for name in self.nodes]
        for pod in self.cleaning:
            pod["status"] = READY if pod["spec"]["nodeName"] in self.ready else {}

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path, name = request.url.path, request.url.path.rpartition("/")[2]
        if (request.method, path) in self.forbidden:
            return httpx2.Response(403, json={"message": "no"})
        if path.endswith("/log"):
            pod = path.split("/")[-2]
            return httpx2.Response(200, text=self.logs[pod.removeprefix("clean-")])
        if request.method == "PATCH":
            for kind, gone in json.loads(request.content)["metadata"].items():
                for key in gone:
                    self.nodes[name]["metadata"][kind].pop(key)
            return httpx2.Response(200, json=self.nodes[name])
        if path.startswith(f"{NODES}/"):
            return httpx2.Response(200, json=self.nodes[name])
        if request.method == "POST":
            self.sets["divvy-clean-up"] = json.loads(request.content)
            self.start()
            return httpx2.Response(201, json=self.sets["divvy-clean-up"])
        if request.method == "DELETE":
            self.deleted.append(name)
            del self.sets[name]
            return httpx2.Response(200, json={})
        if path.startswith(f"{SETS}/"):
            live = self.sets.get(name)
            return httpx2.Response(200 if live else 404, json=live or {"message": "not found"})
        is_cleaning = request.url.params.get("labelSelector", "").endswith("=clean-up")
        is_released = request.url.params.get("labelSelector", "").endswith("!=clean-up")
        pods = self.cleaning if is_cleaning and not is_released else self.agents
        items = list(self.nodes.values()) if path == NODES else pods
        return httpx2.Response(200, json={"items": items, "metadata": {}})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(module, "_SECONDS", 0.05)
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)
    return Api()


@pytest.fixture
def client(api: Api) -> Iterator[Client]:
    transport = httpx2.MockTransport(api.answer)
    with Client(ClusterConfig("http://api"), transport=transport) as http:
        yield http


def run(api: Api, client: Client) -> list[str]:
    """Clean up as destroy does: Helm removes the agents in between."""
    clean_up = CleanUp(client, "divvy-system", lambda _: None)
    api.sets.pop("divvy-agent", None)
    api.agents = []
    return clean_up.until_pods_have_ended() + clean_up.run()


def test_removes_what_the_agent_alone_has_written(api: Api, client: Client) -> None:
    assert written(raw_node("n")) == (["nvidia.com/gpu.count"], ["divvy.gpu/status"])
    run(api, client)
    for node in api.nodes.values():
        assert node["metadata"]["labels"].keys() == {
            "nvidia.com/gpu.product",
            "nvidia.com/mig.capable",
            "team",
        }
        assert node["metadata"]["annotations"].keys() == {"divvy.gpu/agent", "note"}


def test_reports_what_stays_on_which_node_and_removes_its_pods(api: Api, client: Client) -> None:
    assert run(api, client) == ["node n2: all files: GPUs are held by team/a"]
    assert api.deleted == ["divvy-clean-up"]


def test_reports_a_node_that_is_not_done_in_time(api: Api, client: Client) -> None:
    api.ready = {"n1"}
    assert "node n2: not cleaned up: pod clean-n2 is not done" in run(api, client)
    assert api.deleted == ["divvy-clean-up"]


def test_goes_on_with_a_clean_up_that_was_killed(api: Api, client: Client) -> None:
    api.sets = {"divvy-clean-up": {"metadata": {"name": "divvy-clean-up"}}}
    api.agents = []
    api.start()
    assert run(api, client) == ["node n2: all files: GPUs are held by team/a"]
    assert api.deleted == ["divvy-clean-up"]


def test_makes_no_pods_where_no_agent_ran(api: Api, client: Client) -> None:
    api.agents = []
    assert run(api, client) == []
    assert api.deleted == []


def test_does_not_know_the_files_of_agents_that_were_gone_before(api: Api, client: Client) -> None:
    """As after a destroy that was killed between uninstalling and cleaning."""
    api.agents, api.sets = [], {}
    (unknown,) = run(api, client)
    assert unknown.startswith("files of agents may be left on nodes: ")
    assert api.deleted == []


def test_says_what_this_user_may_not_clean(api: Api, client: Client) -> None:
    api.forbidden = {("PATCH", f"{NODES}/n1"), ("POST", SETS)}
    labels, files = run(api, client)
    assert labels.startswith("node n1: labels and annotations: ")
    assert files.startswith("the agents' files stay on the nodes: ")
    assert "divvy.gpu/status" not in api.nodes["n2"]["metadata"]["annotations"]


def test_runs_where_the_agent_runs_by_its_image_and_without_rights() -> None:
    agent = copy.deepcopy(AGENT)
    before = agent["spec"]["template"]["spec"]
    before["imagePullSecrets"] = [{"name": "registry"}]
    before["tolerations"] = [{"key": "gpu"}]
    before["affinity"] = {"nodeAffinity": {}}
    pod = clean_up_pods(agent)["spec"]["template"]["spec"]
    for key in ("affinity", "tolerations", "imagePullSecrets", "priorityClassName"):
        assert pod[key] == before[key]
    assert "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert container["image"] == before["containers"][0]["image"]
    names = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} <= names


@pytest.mark.parametrize(
    ("profile", "pool", "words"),
    [
        ({"timeSlicing": {"replicas": 2}}, {}, []),
        ({"mig": {"1g.5gb": 7}}, {}, ["MIG instances"]),
        ({}, {"runtime": {"configure": True}}, ["90-divvy"]),
        ({"claims": {}}, {}, ["ResourceClaimTemplates"]),
    ],
)
def test_says_what_nothing_takes_away(
    profile: dict[str, Any], pool: dict[str, Any], words: list[str]
) -> None:
    cluster = parse_cluster(
        {"profiles": {"only": profile}, "pools": {"all": {"profile": "only", **pool}}}
    )
    lines = stays(cluster)
    assert len(lines) == len(words)
    assert all(word in line for word, line in zip(words, lines, strict=True))
