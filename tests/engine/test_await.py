"""When a step is done: kind × (create, update, delete) × (good, never, refused, gone).

On a real API server with the controllers of workloads; the tests play scheduler and kubelet.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes.provider import KubernetesProvider
from divvy.engine.state.resource import ResourceState
from divvy.engine.urn import make_urn
from tests.engine.bare_cluster import BareCluster, bare_cluster
from tests.thoroughness import THOROUGH

pytestmark = pytest.mark.lab
CEL = {"expression": "true"}
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
ROLE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
MATCH = {
    "resourceRules": [
        {"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"],
         "resources": ["things"]}
    ]
}  # fmt: skip
MUTATION = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": '[JSONPatch{op: "add", path: "/x", value: "y"}]'},
}
ADMISSION = "admissionregistration.k8s.io/v1"
POD = {"containers": [{"name": "c", "image": "i:1"}], "terminationGracePeriodSeconds": 0}
CLAIM = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "d"}}]}}}


def workload(**more: Any) -> dict[str, Any]:
    labels = {"app": "w"}
    template = {"metadata": {"labels": labels}, "spec": POD}
    return {"spec": {"selector": {"matchLabels": labels}, "template": template, **more}}


# Kind → apiVersion, and what an object of it needs beside its metadata.
SIMPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "Namespace": ("v1", {}),
    "ConfigMap": ("v1", {"data": {"a": "1"}}),
    "Secret": ("v1", {"stringData": {"a": "1"}}),
    "Service": ("v1", {"spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
    "ServiceAccount": ("v1", {}),
    "LimitRange": ("v1", {"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}),
    "ResourceQuota": ("v1", {"spec": {"hard": {"pods": "10"}}}),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", {"rules": RULES}),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", {"roleRef": ROLE}),
    "Role": ("rbac.authorization.k8s.io/v1", {"rules": RULES}),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", {"roleRef": ROLE}),
    "MutatingAdmissionPolicy": (
        ADMISSION,
        {"spec": {"matchConstraints": MATCH, "mutations": [MUTATION], "reinvocationPolicy":
         "Never"}},
    ),
    "MutatingAdmissionPolicyBinding": (ADMISSION, {"spec": {"policyName": "none"}}),
    "ValidatingAdmissionPolicy": (
        ADMISSION,
        {"spec": {"matchConstraints": MATCH, "validations": [{"expression": "true"}]}},
    ),
    "ValidatingAdmissionPolicyBinding": (
        ADMISSION,
        {"spec": {"policyName": "none", "validationActions": ["Deny"]}},
    ),
    "Lease": ("coordination.k8s.io/v1", {"spec": {"holderIdentity": "h"}}),
    "NetworkPolicy": ("networking.k8s.io/v1", {"spec": {"podSelector": {}}}),
    "RuntimeClass": ("node.k8s.io/v1", {"handler": "h"}),
    "PodDisruptionBudget": (
        "policy/v1",
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    ),
    "DeviceClass": ("resource.k8s.io/v1", {"spec": {"selectors": [{"cel": CEL}]}}),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", {"spec": CLAIM}),
    "PriorityClass": ("scheduling.k8s.io/v1", {"value": 1}),
    "PrometheusRule": ("monitoring.coreos.com/v1", {"spec": {}}),
    "ServiceMonitor": ("monitoring.coreos.com/v1", {"spec": {}}),
}  # fmt: skip
WORKLOADS: dict[str, dict[str, Any]] = {
    "Deployment": workload(replicas=1),
    "DaemonSet": workload(),
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
DELETION_POLICY = {
    "apiVersion": ADMISSION,
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "keeps"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["DELETE"],
                 "resources": ["*"]}
            ],
            "objectSelector": {"matchLabels": {"keeps": "yes"}},
        },
        "validations": [{"expression": "false", "message": "it is kept"}],
    },
}  # fmt: skip
# In `make test`: of the whole cluster, of a namespace, one that is awaited, and the agent's own.
SIMPLE_KINDS = [*SIMPLE] if THOROUGH else ["ClusterRole", "ConfigMap", "Service"]
WORKLOAD_KINDS = [*WORKLOADS] if THOROUGH else ["DaemonSet"]
# The API server exempts them, so that a policy can always be removed.
UNGUARDED = {kind for kind, (version, _) in SIMPLE.items() if version == ADMISSION}


class Nodes:
    """Plays scheduler and kubelet for the pods of a namespace: every pod becomes as ``pods`` say.

    "ready"; "unready": it runs, and its probe fails; "crashing": its container ends again and
    again; "unscheduled"; "mixed": pods of image i:1 are ready, all others fail their probe.
    """

    def __init__(self, cluster: BareCluster) -> None:
        self.pods = "ready"
        self._http = httpx2.Client(
            base_url=cluster.server,
            headers={"Authorization": "Bearer bare-cluster-administrator"},
            verify=False,
        )
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._http.close()

    def request(self, method: str, path: str, body: object = None, kind: str = "json") -> Any:
        headers = {"Content-Type": f"application/{kind}"}
        answer = self._http.request(method, path, content=json.dumps(body), headers=headers)
        return answer.json() if answer.is_success else None

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            listed = self.request("GET", "/api/v1/pods")
            for pod in (listed or {}).get("items", ()):
                self._serve(pod)

    def _serve(self, pod: dict[str, Any]) -> None:
        name, space = pod["metadata"]["name"], pod["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{space}/pods/{name}"
        if pod["metadata"].get("deletionTimestamp"):
            if not pod["metadata"].get("finalizers"):
                self.request("DELETE", path, {"gracePeriodSeconds": 0})
            return
        (container,) = pod["spec"]["containers"]
        ready = self.pods == "ready" or (self.pods == "mixed" and container["image"] == "i:1")
        if self.pods == "unscheduled":
            conditions = [_condition("PodScheduled", False, "0/1 nodes are available: 1 Too cold")]
            status: dict[str, Any] = {"phase": "Pending", "conditions": conditions}
        else:
            if not pod["spec"].get("nodeName"):
                target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
                           "target": target}  # fmt: skip
                self.request("POST", f"{path}/binding", binding)
            state: dict[str, Any] = {"running": {}}
            if self.pods == "crashing":
                state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            status = {
                "phase": "Running",
                "conditions": [_condition("Ready", ready, "containers with unready status: [c]")],
                "containerStatuses": [
                    {"name": "c", "ready": ready, "restartCount": 5, "image": "i", "imageID": "i",
                     "state": state}
                ],
            }  # fmt: skip
            if self.pods == "unready" and not pod.get("status", {}).get("containerStatuses"):
                self._report(pod, "Readiness probe failed: HTTP probe failed with statuscode: 503")
        old = pod.get("status") or {}
        if old.get("phase") != status["phase"] or not _alike(old, status):
            self.request("PATCH", f"{path}/status", {"status": status}, "merge-patch+json")

    def _report(self, pod: dict[str, Any], message: str) -> None:
        space = pod["metadata"]["namespace"]
        involved = {"kind": "Pod", "namespace": space, "name": pod["metadata"]["name"],
                    "uid": pod["metadata"]["uid"]}  # fmt: skip
        event = {
            "metadata": {"generateName": "probe-", "namespace": space},
            "involvedObject": involved,
            "reason": "Unhealthy",
            "type": "Warning",
            "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z",
        }
        self.request("POST", f"/api/v1/namespaces/{space}/events", event)


def _condition(kind: str, true: bool, message: str) -> dict[str, str]:
    return {"type": kind, "status": str(true), "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": "Test", "message": message}  # fmt: skip


def _alike(old: dict[str, Any], new: dict[str, Any]) -> bool:
    def conditions(status: dict[str, Any]) -> list[tuple[str, str]]:
        return [(entry["type"], entry["status"]) for entry in status.get("conditions") or ()]

    return set(conditions(new)) <= set(conditions(old))


@pytest.fixture(scope="module")
def controlled() -> Iterator[BareCluster]:
    with bare_cluster("deployment-controller", "replicaset-controller") as running:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        running.kubectl("create", "--filename=-", stdin=json.dumps(node))
        # The API server taints a node that has not reported yet.
        running.kubectl("patch", "node", "n", "--patch", json.dumps({"spec": {"taints": None}}))
        for plural, kind in (("servicemonitors", "ServiceMonitor"),
                             ("prometheusrules", "PrometheusRule")):  # fmt: skip
            names = {"plural": plural, "kind": kind}
            spec = {**DEFINITION["spec"], "names": names}  # type: ignore[dict-item]
            name = {"name": f"{plural}.monitoring.coreos.com"}
            text = json.dumps({**DEFINITION, "metadata": name, "spec": spec})
            running.kubectl("create", "--filename=-", stdin=text)
        running.kubectl("create", "--filename=-", stdin=json.dumps(DELETION_POLICY))
        binding = {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "keeps"},
            "spec": {"policyName": "keeps", "validationActions": ["Deny"]},
        }
        running.kubectl("create", "--filename=-", stdin=json.dumps(binding))
        yield running


@pytest.fixture(scope="module")
def shared_nodes(controlled: BareCluster) -> Iterator[Nodes]:
    running = Nodes(controlled)
    yield running
    running.close()


@pytest.fixture
def nodes(shared_nodes: Nodes) -> Iterator[Nodes]:
    shared_nodes.pods = "ready"
    yield shared_nodes
    shared_nodes.pods = "ready"


class Steps:
    """Drives a provider as a run does."""

    def __init__(self, cluster: BareCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.heard: list[str] = []
        self.provider = KubernetesProvider(
            {"kubeconfig": str(cluster.kubeconfig), "namespace": namespace},
            "divvy-test",
            lambda _urn, text: self.heard.append(text),
            {},
        )

    def inputs(self, kind: str, label: str = "1", **spec: Any) -> dict[str, Any]:
        version, rest = SIMPLE.get(kind) or ("apps/v1", WORKLOADS[kind])
        obj = {"apiVersion": version, "kind": kind, **json.loads(json.dumps(rest))}
        obj["metadata"] = {"name": f"{self.namespace}-{kind.lower()}", "labels": {"l": label}}
        if "pod" in spec:
            obj["spec"]["template"]["spec"].update(spec["pod"])
        if "env" in spec:
            container = obj["spec"]["template"]["spec"]["containers"][0]
            container["env"] = [{"name": "E", "value": spec["env"]}]
        return self.provider.check(self.urn(kind), None, obj)

    def urn(self, kind: str) -> str:
        version = (SIMPLE.get(kind) or ("apps/v1",))[0]
        group = version if "/" in version else f"core/{version}"
        return make_urn("dev", "p", "", f"kubernetes:{group}:{kind}", "x")

    def create(self, inputs: dict[str, Any], timeout: float = 20) -> ResourceState:
        urn = self.urn(inputs["kind"])
        identity, start = self.provider.begin(inputs)
        outputs = self.provider.create(urn, inputs, start, timeout=timeout).outputs
        return ResourceState(urn, urn, custom=True, id=identity, inputs=inputs, outputs=outputs)

    def update(
        self, resource: ResourceState, inputs: dict[str, Any], timeout: float = 20
    ) -> dict[str, Any]:
        return self.provider.update(resource, inputs, timeout=timeout, ignored=()).outputs


@pytest.fixture
def steps(controlled: BareCluster) -> Iterator[Steps]:
    namespace = f"a{os.urandom(4).hex()}"
    controlled.kubectl("create", "namespace", namespace)
    driver = Steps(controlled, namespace)
    yield driver
    driver.provider.close()
    controlled.kubectl("delete", "namespace", namespace, "--wait=false")


def live(steps: Steps, resource: ResourceState) -> dict[str, Any] | None:
    answer = steps.provider.read(resource)
    return None if answer is None else answer[1]


@pytest.mark.parametrize("kind", SIMPLE_KINDS)
def test_creates_updates_and_deletes_what_the_api_server_accepts(steps: Steps, kind: str) -> None:
    resource = steps.create(steps.inputs(kind))
    assert steps.provider.drifted(resource, resource.inputs, ()) == ()
    updated = steps.update(resource, steps.inputs(kind, "2"))
    assert updated["metadata"]["labels"]["l"] == "2"
    assert updated["metadata"]["uid"] == resource.outputs["metadata"]["uid"]
    steps.provider.delete(resource, timeout=20)
    assert live(steps, resource) is None


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("kind", [*SIMPLE_KINDS, *WORKLOAD_KINDS])
def test_reports_what_the_api_server_refuses_and_changes_nothing(steps: Steps, kind: str) -> None:
    wrong = steps.inputs(kind, "no label!")
    with pytest.raises(StepFailed, match="no label!"):
        steps.create(wrong)
    resource = steps.create(steps.inputs(kind))
    with pytest.raises(StepFailed, match="no label!"):
        steps.update(resource, wrong)
    held = live(steps, resource)
    assert held is not None
    assert held["metadata"]["labels"]["l"] == "1"


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("kind", sorted({*SIMPLE_KINDS, *WORKLOAD_KINDS} - UNGUARDED))
def test_reports_a_deletion_that_is_refused_or_never_ends(steps: Steps, kind: str) -> None:
    inputs = steps.inputs(kind)
    inputs["metadata"]["labels"]["keeps"] = "yes"
    resource = steps.create(inputs)
    with pytest.raises(StepFailed, match="it is kept"):
        steps.provider.delete(resource, timeout=2)
    held = steps.inputs(kind)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    steps.update(resource, held)
    with pytest.raises(StepFailed, match=r"is not gone after 1 s: waiting for .*example\.com/hold"):
        steps.provider.delete(resource, timeout=1)
    place = resource.id.rpartition("/")
    free = json.dumps({"metadata": {"finalizers": None}})
    steps.cluster.kubectl(
        "patch", kind.lower(), place[2], *([f"--namespace={place[0]}"] if place[0] else []),
        "--type=merge", f"--patch={free}",
    )  # fmt: skip


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("kind", [*SIMPLE_KINDS, *WORKLOAD_KINDS])
def test_treats_an_object_deleted_outside_as_gone_in_every_step(steps: Steps, kind: str) -> None:
    resource = steps.create(steps.inputs(kind))
    place = resource.id.rpartition("/")
    steps.cluster.kubectl(
        "delete", kind.lower(), place[2], *([f"--namespace={place[0]}"] if place[0] else [])
    )
    assert steps.provider.drifted(resource, resource.inputs, ()) is None
    steps.provider.delete(resource, timeout=2)
    again = steps.create(steps.inputs(kind))
    assert again.outputs["metadata"]["uid"] != resource.outputs["metadata"]["uid"]
    # The record of an object is never the right to delete its namesake.
    steps.provider.delete(resource, timeout=2)
    assert live(steps, again) is not None


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("kind", WORKLOAD_KINDS)
def test_waits_for_pods_of_the_new_template(steps: Steps, kind: str) -> None:
    resource = steps.create(steps.inputs(kind))
    outputs = steps.update(resource, steps.inputs(kind, env="2"))
    status = outputs["status"]
    assert status["observedGeneration"] == outputs["metadata"]["generation"]
    assert status.get("updatedReplicas", status.get("updatedNumberScheduled")) == 1
    pods = steps.cluster.get("pods", f"--namespace={steps.namespace}")["items"]
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    assert [pod["spec"]["containers"][0]["env"][0]["value"] for pod in present] == ["2"]
    steps.provider.delete(resource, timeout=20)
    assert steps.cluster.get("pods", f"--namespace={steps.namespace}")["items"] == []


@pytest.mark.parametrize("kind", WORKLOAD_KINDS)
@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ("unready", "statuscode: 503"),
        ("unscheduled", "Too cold"),
        ("crashing", "CrashLoopBackOff"),
    ],
)
def test_reports_why_pods_do_not_get_ready(
    steps: Steps, nodes: Nodes, kind: str, pods: str, reason: str
) -> None:
    nodes.pods = pods
    with pytest.raises(StepFailed, match=reason) as failed:
        steps.create(steps.inputs(kind), timeout=8)
    assert failed.value.partial is not None


@pytest.mark.parametrize("kind", WORKLOAD_KINDS)
def test_fails_an_update_whose_pods_never_get_ready(steps: Steps, nodes: Nodes, kind: str) -> None:
    resource = steps.create(steps.inputs(kind))
    nodes.pods = "mixed"
    bad = steps.inputs(kind, pod={"containers": [{"name": "c", "image": "i:2"}]})
    with pytest.raises(StepFailed, match="not ready"):
        steps.update(resource, bad, timeout=6)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize("kind", WORKLOAD_KINDS)
@pytest.mark.parametrize("step", ["create", "update"])
def test_fails_when_pods_are_refused(steps: Steps, kind: str, step: str) -> None:
    refused = steps.inputs(kind, pod={"priorityClassName": "absent"})
    if step == "create":
        with pytest.raises(StepFailed, match="no PriorityClass with name absent"):
            steps.create(refused, timeout=6)
        return
    resource = steps.create(steps.inputs(kind))
    with pytest.raises(StepFailed, match="no PriorityClass with name absent"):
        steps.update(resource, refused, timeout=6)


@pytest.mark.parametrize("kind", WORKLOAD_KINDS)
def test_fails_when_a_workload_is_deleted_while_awaited(
    steps: Steps, nodes: Nodes, kind: str
) -> None:
    nodes.pods = "unready"
    inputs = steps.inputs(kind)
    name = inputs["metadata"]["name"]
    timer = threading.Timer(
        2,
        lambda: steps.cluster.kubectl(
            "delete", kind.lower(), name, f"--namespace={steps.namespace}"
        ),
    )
    timer.start()
    with pytest.raises(StepFailed, match="was deleted while"):
        steps.create(inputs, timeout=30)
    timer.join()


def test_waits_for_a_load_balancers_address(steps: Steps) -> None:
    inputs = steps.inputs("Service")
    inputs["spec"]["type"] = "LoadBalancer"
    with pytest.raises(StepFailed, match="the service has no address yet"):
        steps.create(inputs, timeout=1)


def test_ignores_the_old_pods_in_a_rolling_update(steps: Steps, nodes: Nodes) -> None:
    nodes.pods = "crashing"
    with pytest.raises(StepFailed, match="CrashLoopBackOff") as failed:
        steps.create(steps.inputs("Deployment"), timeout=8)
    outputs = failed.value.partial
    assert outputs is not None
    nodes.pods = "ready"
    inputs = steps.inputs("Deployment")
    resource = ResourceState(
        steps.urn("Deployment"), "x", custom=True, id=inputs["metadata"]["name"], inputs=inputs,
        outputs=outputs,
    )  # fmt: skip
    steps.update(resource, steps.inputs("Deployment", env="2"))
