"""The Kubernetes provider without a cluster."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes import connection as module
from divvy.engine.kubernetes.api import Api, ApiProblem
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.provider import KubernetesProvider
from divvy.kube.client import Answer, Client
from divvy.kube.kind import CONFIG_MAP, Kind
from tests.engine.bare_cluster import BareCluster


def test_shares_one_connection_among_concurrent_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    namespaces = []

    class SlowApi:
        def __init__(self, *place: Any) -> None:
            time.sleep(0.05)
            namespaces.append(place)

    monkeypatch.setattr(module, "Api", SlowApi)
    connection = Connection({"context": "c"}, {})
    with ThreadPoolExecutor(8) as workers:
        clients = set(workers.map(lambda _: connection.api, range(8)))
    assert (len(clients), namespaces) == (1, [(None, "c")])


def test_shortens_a_field_manager_to_what_the_api_accepts() -> None:
    provider = KubernetesProvider({}, "m" * 200, lambda _urn, _text: None, {})
    inputs = {"metadata": {"name": "a", "namespace": "n"}}
    managers = {provider.begin(inputs)[1]["__fieldManager"] for _ in range(2)}
    assert len(managers) == 2
    assert {len(manager) for manager in managers} == {128}


def test_reports_what_is_not_the_api_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://here:1"}}],
    }
    api = Api(json.dumps(kubeconfig), None)
    answers = [Answer(200, '{"items": null}'), *(Answer(200, text) for text in ("<html>", "null"))]
    monkeypatch.setattr(Client, "send", lambda *_, **__: answers.pop(0))
    assert api.list(CONFIG_MAP, "n") == []
    while answers:
        with pytest.raises(ApiProblem, match="does not answer as one") as problem:
            api.get(CONFIG_MAP, "n", "x")
        assert problem.value.unsure
    api.close()


@pytest.mark.lab
def test_refuses_to_overwrite_an_object_created_after_the_look(
    cluster: BareCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = KubernetesProvider(
        {"kubeconfig": str(cluster.kubeconfig)}, "divvy", lambda _urn, _text: None, {}
    )
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "race"},
           "data": {"ours": "1"}}  # fmt: skip
    inputs = provider.check("urn:pulumi:d::p::kubernetes:core/v1:ConfigMap::race", None, obj)
    get = Api.get

    def get_before_creation(api: Api, kind: Kind, namespace: str, name: str) -> Any:
        answer = get(api, kind, namespace, name)
        cluster.kubectl("create", "configmap", "race", "--from-literal=theirs=1")
        return answer

    monkeypatch.setattr(Api, "get", get_before_creation)
    with pytest.raises(StepFailed, match="already exists"):
        provider.create("urn", inputs, provider.begin(inputs)[1], timeout=1)
    live = cluster.get("configmap", "race")
    assert live["data"] == {"theirs": "1"}
    managed = live["metadata"].get("managedFields", ())
    assert not [entry for entry in managed if entry["manager"].startswith("divvy")]
    cluster.kubectl("delete", "configmap", "race")
    provider.close()
