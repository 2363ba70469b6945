"""The Kubernetes provider without a cluster."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes import api as api_module
from divvy.engine.kubernetes import connection as module
from divvy.engine.kubernetes.api import Api, ApiProblem
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.provider import KubernetesProvider
from divvy.engine.state.resource import ResourceState
from divvy.engine.values import SECRET_SIGNATURE, SIGNATURE_KEY, UNKNOWN
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


KUBECONFIG = json.dumps(
    {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://here:1"}}],
    }
)


def test_reports_what_is_not_the_api_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api(KUBECONFIG, None)
    answers = [Answer(200, '{"items": null}'), *(Answer(200, text) for text in ("<html>", "null"))]
    monkeypatch.setattr(Client, "send", lambda *_, **__: answers.pop(0))
    assert api.list(CONFIG_MAP, "n") == []
    while answers:
        with pytest.raises(ApiProblem, match="does not answer as one") as problem:
            api.get(CONFIG_MAP, "n", "x")
        assert problem.value.unsure
    api.close()


class Cluster:
    """An API server's answers by path; all other paths do not exist. It notes what it is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **objects: Any) -> None:
        self.objects: dict[str, Any] = objects
        self.refusals: list[Answer] = []
        self.requests: list[str] = []
        self.managers: list[str] = []
        monkeypatch.setattr(
            Client, "send", lambda _, *request, **options: self._answer(*request, **options)
        )
        self.provider = KubernetesProvider(
            {"kubeconfig": KUBECONFIG}, "divvy" * 40, lambda _urn, _text: None, {}
        )

    def _answer(self, method: str, path: str, body: Any = None, **options: Any) -> Answer:
        self.requests.append(f"{method} {path}")
        self.managers += [(options.get("query") or {}).get("fieldManager", "")]
        if self.refusals and method == "PATCH":
            return self.refusals.pop(0)
        if path not in self.objects:
            return Answer(404, json.dumps({"code": 404, "message": f"no {path}"}))
        return Answer(200, json.dumps(self.objects[path]))


def kinds(*names: str) -> dict[str, Any]:
    """Return what a version of a group is answered with."""
    return {
        "resources": [
            {"name": f"{name.lower()}s", "kind": name, "namespaced": True} for name in names
        ]
    }


def recorded(obj: dict[str, Any]) -> ResourceState:
    return ResourceState("urn:pulumi:d::p::t::x", "t", custom=True, inputs=obj, outputs=obj)


@pytest.mark.parametrize("metadata", [{"name": "a"}, {}])
def test_previews_an_object_whose_annotations_are_unknown(
    monkeypatch: pytest.MonkeyPatch, metadata: dict[str, Any]
) -> None:
    provider = Cluster(monkeypatch, **{"/api/v1": kinds("ConfigMap")}).provider
    obj = {"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {**metadata, "annotations": UNKNOWN}}  # fmt: skip
    inputs = provider.check("urn:pulumi:d::p::kubernetes:core/v1:ConfigMap::x", None, obj)
    assert inputs["metadata"]["annotations"] == UNKNOWN
    assert inputs["metadata"]["name"]
    predicted = provider.preview_create("urn", inputs, replacing=False).outputs
    assert predicted["metadata"]["annotations"] == UNKNOWN
    provider.close()


def test_previews_with_a_field_manager_that_the_api_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(monkeypatch, **{"/api/v1": kinds("ConfigMap")})
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}}
    cluster.provider.preview_create("urn", obj, replacing=False)
    assert 0 < len(cluster.managers[-1]) <= 128
    cluster.provider.close()


def test_obeys_no_annotations_but_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"name": "a", "namespace": "n", "uid": "1"}
    obj = {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
           "spec": {"type": "LoadBalancer"}}  # fmt: skip
    path = "/api/v1/namespaces/n/services/a"
    cluster = Cluster(monkeypatch, **{"/api/v1": kinds("Service")})
    for annotation in ({"timeoutSeconds": "x"}, {"skipAwait": "true"}):
        theirs = {f"pulumi.com/{name}": text for name, text in annotation.items()}
        live = {**obj, "metadata": {**metadata, "annotations": theirs}}
        cluster.objects[path] = live
        resource = replace(recorded(obj), outputs=live)
        with pytest.raises(StepFailed, match="the service has no address yet after 0 s"):
            cluster.provider.update(resource, obj, timeout=0, ignored=())
        with pytest.raises(StepFailed, match="is not gone after 0 s"):
            cluster.provider.delete(resource, timeout=0)
    ours = {**obj, "metadata": {**metadata, "annotations": {"pulumi.com/skipAwait": "true"}}}
    cluster.provider.update(recorded(ours), ours, timeout=0, ignored=())
    cluster.provider.delete(recorded(ours), timeout=0)
    cluster.provider.close()


@pytest.mark.parametrize("name", ["team/app", "100%", "..", "."])
def test_refuses_what_is_no_name_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    provider = Cluster(monkeypatch, **{"/api/v1": kinds("ConfigMap")}).provider
    obj: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    with pytest.raises(StepFailed, match="is no object's name"):
        provider.check("urn", None, {**obj, "metadata": {"name": name}})
    if "." not in name:  # an automatic one begins with the resource's
        with pytest.raises(StepFailed, match="is no object's name"):
            provider.check(f"urn:pulumi:d::p::t::{name}", None, obj)
    provider.close()


def test_finds_an_object_by_any_name() -> None:
    roles = Kind("rbac.authorization.k8s.io/v1", "Role", "roles")
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles"
    assert roles.path("n", "system:who? #1") == f"{path}/system:who%3F%20%231"


def test_takes_no_annotation_for_the_mark_of_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    annotations = {SIGNATURE_KEY: SECRET_SIGNATURE, "a": "b"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap",
           "metadata": {"name": "a", "namespace": "n", "uid": "1"}}  # fmt: skip
    live = {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}  # type: ignore[dict-item]
    path = "/api/v1/namespaces/n/configmaps/a"
    cluster = Cluster(monkeypatch, **{"/api/v1": kinds("ConfigMap"), path: live})
    answer = cluster.provider.read(recorded(obj))
    assert answer is not None
    assert answer[1]["metadata"]["annotations"] == {"a": "b"}
    cluster.provider.close()


def test_deletes_an_object_whose_recorded_version_is_no_longer_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    metadata = {"name": "a", "namespace": "n", "uid": "1"}
    obj = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceClaimTemplate",
           "metadata": metadata}  # fmt: skip
    path = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaimtemplates/a"
    group = {"versions": [{"groupVersion": f"resource.k8s.io/{version}"} for version in
             ("v1beta2", "v1")]}  # fmt: skip
    cluster = Cluster(
        monkeypatch,
        **{
            "/apis/resource.k8s.io": group,
            "/apis/resource.k8s.io/v1beta2": kinds("DeviceClass"),
            "/apis/resource.k8s.io/v1": kinds("ResourceClaimTemplate"),
            path: {**obj, "apiVersion": "resource.k8s.io/v1"},
        },
    )
    assert cluster.provider.drifted(recorded(obj), obj, ()) == ("apiVersion",)
    with pytest.raises(StepFailed, match="is not gone"):
        cluster.provider.delete(recorded(obj), timeout=0)
    assert f"DELETE {path}" in cluster.requests
    with pytest.raises(StepFailed, match=r"no ResourceClaimTemplate in resource.k8s.io/v1beta1"):
        cluster.provider.update(recorded(obj), obj, timeout=0, ignored=())
    cluster.provider.close()


def test_takes_an_object_for_gone_with_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = {"name": "a", "namespace": "n", "uid": "1"}
    obj = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata}
    cluster = Cluster(monkeypatch)
    assert cluster.provider.drifted(recorded(obj), obj, ()) is None
    cluster.provider.delete(recorded(obj), timeout=0)
    cluster.provider.close()


@pytest.mark.parametrize("conflicts", [1, 9])
def test_takes_an_object_over_that_its_controller_writes_meanwhile(
    monkeypatch: pytest.MonkeyPatch, conflicts: int
) -> None:
    """Nine times is more than a controller's status explains."""
    edit = {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:data": {}}}
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": "7",
                     "managedFields": [edit]},
        "data": {"x": "1"},
    }  # fmt: skip
    path = "/api/v1/namespaces/n/configmaps/a"
    cluster = Cluster(monkeypatch, **{"/api/v1": kinds("ConfigMap"), path: obj})
    cause = {"reason": "FieldManagerConflict", "field": ".data.x",
             "message": 'conflict with "kubectl-edit"'}  # fmt: skip
    conflict = {"code": 409, "details": {"causes": [cause]}}
    changed = {"code": 409, "message": "the object has been modified"}
    cluster.refusals = [
        Answer(409, json.dumps(body)) for body in (conflict, *[changed] * conflicts)
    ]
    inputs = {**obj, "metadata": {"name": "a", "namespace": "n"}}
    if conflicts == 1:
        cluster.provider.update(recorded(obj), inputs, timeout=0, ignored=())
        assert cluster.requests.count(f"PATCH {path}") == 4  # tried, refused, taken over, applied
    else:
        with pytest.raises(StepFailed, match="the object has been modified"):
            cluster.provider.update(recorded(obj), inputs, timeout=0, ignored=())
    cluster.provider.close()


@pytest.mark.parametrize(
    ("answers", "seconds"),
    [
        # A server that throttles says when to come back, also if it was asked for the first time.
        ([Answer(429, "", 3), Answer(200, "{}")], [3]),
        ([Answer(500, "", 1), Answer(429, "", 2), Answer(200, "{}")], [1, 2]),
        ([Answer(200, "{}"), Answer(503, ""), Answer(200, "{}")], [0.5]),
    ],
)
def test_asks_a_busy_api_server_again_when_it_wants(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], seconds: list[float]
) -> None:
    api = Api(KUBECONFIG, None)
    waited: list[float] = []
    monkeypatch.setattr(Client, "send", lambda *_, **__: answers.pop(0))
    monkeypatch.setattr(api_module.time, "sleep", waited.append)
    while answers:
        assert api.get(CONFIG_MAP, "n", "x") == {}
    assert waited == seconds
    api.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [(Answer(503, "no backend"), "no backend"), (Answer(429, "too many", 60), "too many")],
)
def test_reports_a_server_that_is_busy_for_long(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, words: str
) -> None:
    """An address that has never answered otherwise is more likely a wrong one."""
    api = Api(KUBECONFIG, None)
    monkeypatch.setattr(Client, "send", lambda *_, **__: answer)
    with pytest.raises(ApiProblem, match=words):
        api.get(CONFIG_MAP, "n", "x")
    api.close()


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        ("a b\nc\n", "a b\nc"),
        (f"{'x' * 9_000} {'word ' * 100}end", f"… {'word ' * 100}end"),
        ("x" * 9_000, "… "),
    ],
)
def test_keeps_the_end_of_a_log_short(monkeypatch: pytest.MonkeyPatch, log: str, tail: str) -> None:
    api = Api(KUBECONFIG, None)
    monkeypatch.setattr(Client, "send", lambda *_, **__: Answer(200, log))
    assert api.log_tail("n", "p", "c", previous=False) == tail
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
