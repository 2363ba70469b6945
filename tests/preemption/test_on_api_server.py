"""The controller at a real API server, with the stock scheduler: it makes room, and no more."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.model.contract import PREEMPTION
from divvy.model.slice_specs import slice_specs
from tests.agent.claim_values import ON_DEMAND, offered_gpu
from tests.claim_templates.stock_scheduler import make_node, running_scheduler
from tests.engine.bare_cluster import bare_cluster
from tests.render.claims.api_server import IMAGE, ApiServer, policies_of
from tests.render.documents import objects_of

pytestmark = pytest.mark.lab
NODE = "preemption-node"
NAMESPACE = "team"
CLUSTER: dict[str, Any] = {
    "profiles": {"on-demand": {"claims": ON_DEMAND}},
    "pools": {"all": {"profile": "on-demand"}},
    "preemption": True,
}
CLAIMS = "/apis/resource.k8s.io/v1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Give a server with one GPU, the stock scheduler, and the controller's account."""
    with bare_cluster(
        "resourceclaim-controller", "disruption-controller", "resourcequota-controller"
    ) as cluster:
        api_server = ApiServer(cluster)
        api_server.namespace("divvy-system")
        api_server.namespace(NAMESPACE)
        api_server.apply(*_own_objects(), *_priorities())
        classes = [
            manifest for manifest in policies_of(CLUSTER) if manifest["kind"] == "DeviceClass"
        ]
        api_server.apply(*classes)
        make_node(api_server, NODE)
        for name, spec in slice_specs(NODE, [offered_gpu(0, ON_DEMAND)], {}, {}, {}, {}).items():
            api_server.apply(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": name},
                    "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
                }
            )
        with running_scheduler(api_server, tmp_path_factory.mktemp("scheduler")):
            yield api_server
        api_server.close()


def _own_objects() -> list[dict[str, Any]]:
    """Return what the controller has and reads, but its Deployment."""
    kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    return [
        manifest
        for manifest in objects_of(CLUSTER, IMAGE)
        if manifest["kind"] == "ConfigMap"
        or (manifest["kind"] in kinds and PREEMPTION in str(manifest))
    ]


def _priorities() -> list[dict[str, Any]]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    patient = {"preemptionPolicy": "Never"}
    return [
        {**kind, "metadata": {"name": name}, "value": value, **more}
        for name, value, more in (
            ("low", 0, {}),
            ("middle", 10, {}),
            ("urgent", 1000, {}),
            ("patient", 1000, patient),
        )
    ]


@pytest.fixture
def controller(server: ApiServer, tmp_path: Path) -> Iterator[Path]:
    """Run the controller as its pod does, with its own account's rights; give its log."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    token = server.cluster.kubectl(
        *("create", "token", PREEMPTION, "--namespace=divvy-system", "--duration=2h")
    ).strip()
    config = yaml.safe_load(server.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    environment = {
        **os.environ,
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "NAMESPACE": "divvy-system",
        "DIVVY_LISTEN": "127.0.0.1",
        "DIVVY_PORT": str(port),
    }
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "divvy.preemption"], env=environment, stdout=log, stderr=log
        )
    server.until(lambda: _answers(port))
    yield tmp_path / "log"
    process.terminate()
    assert process.wait(30) == 0


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
            return answer.read() == b"alive\n"
    except OSError:
        return False


@pytest.fixture(autouse=True)
def _no_pods(server: ApiServer) -> Iterator[None]:
    yield
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    server.send("DELETE", pods, gracePeriodSeconds="0")
    server.send("DELETE", f"{CLAIMS}/namespaces/{NAMESPACE}/resourceclaimtemplates")
    server.until(lambda: not _listed(server, f"{CLAIMS}/resourceclaims"))


def run(server: ApiServer, name: str, priority: str, device_class: str, memory: str = "") -> None:
    """Create a pod with a claim."""
    capacity = {"capacity": {"requests": {"memory": memory, "cores": "1"}}} if memory else {}
    exactly = {"deviceClassName": device_class, **capacity}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }
    path = f"{CLAIMS}/namespaces/{NAMESPACE}/resourceclaimtemplates"
    assert server.send("POST", path, template).status == 201
    claims = {"resources": {"claims": [{"name": "gpu"}]}}
    create(
        server,
        name,
        priority,
        claims,
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": name}],
    )


def create(
    server: ApiServer, name: str, priority: str, container: dict[str, Any], **spec: Any
) -> None:
    """Create a pod that ends at once when it is told to, as there is no kubelet."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "containers": [{"name": "main", "image": "image", **container}],
            "priorityClassName": priority,
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }
    answer = server.send("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    assert answer.status == 201, answer.body


def _listed(server: ApiServer, path: str) -> list[dict[str, Any]]:
    return list(server.send("GET", path).body["items"])


def scheduled(server: ApiServer) -> dict[str, bool]:
    """Return of each pod whether it has a node."""
    pods = _listed(server, f"/api/v1/namespaces/{NAMESPACE}/pods")
    return {pod["metadata"]["name"]: "nodeName" in pod["spec"] for pod in pods}


def events(server: ApiServer, name: str, reason: str) -> list[str]:
    """Return what Events say of a pod."""
    listed = _listed(server, f"/api/v1/namespaces/{NAMESPACE}/events")
    return [
        event["message"]
        for event in listed
        if (event["involvedObject"]["name"], event["reason"]) == (name, reason)
    ]


def test_preempts_the_least_important_pod_for_a_high_priority(
    server: ApiServer, controller: Path
) -> None:
    run(server, "large", "low", "divvy-share", "20Gi")
    run(server, "middle", "middle", "divvy-share", "10Gi")
    run(server, "small", "low", "divvy-share", "5Gi")
    everyone = {"large": True, "middle": True, "small": True}
    server.until(lambda: scheduled(server) == everyone)
    began = time.monotonic()
    run(server, "urgent", "urgent", "divvy-share", "15Gi")
    server.until(lambda: scheduled(server).get("urgent", False))
    # Within 10 s on a machine that is at rest.
    assert time.monotonic() - began < 30
    assert scheduled(server) == {"middle": True, "small": True, "urgent": True}
    server.until(lambda: bool(events(server, "urgent", "Preempting")))
    (message,) = events(server, "large", "Preempted")
    assert "of priority 1000 on node preemption-node, to free what its claims need" in message
    assert "urgent" not in message
    assert events(server, "urgent", "Preempting") == [
        "1 pod of a lower priority on node preemption-node was evicted to free what its claims need"
    ]
    assert "team/urgent: evicted team/large" in controller.read_text()


@pytest.mark.usefixtures("controller")
def test_frees_a_whole_gpu_requested_by_its_ordinary_name(server: ApiServer) -> None:
    for number in range(2):
        run(server, f"mig-{number}", "low", "divvy-mig-1g.5gb")
    server.until(lambda: scheduled(server) == {"mig-0": True, "mig-1": True})
    create(server, "urgent", "urgent", {"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    server.until(lambda: scheduled(server) == {"urgent": True})


def test_evicts_no_pod_against_a_disruption_budget(server: ApiServer, controller: Path) -> None:
    budgets = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    run(server, "held", "low", "divvy-gpu")
    server.until(lambda: scheduled(server) == {"held": True})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "held"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
    }
    assert server.send("POST", budgets, budget).status == 201
    run(server, "urgent", "urgent", "divvy-gpu")
    server.until(lambda: "team/urgent: no pod is preempted" in controller.read_text())
    assert scheduled(server) == {"held": True, "urgent": False}
    assert server.send("DELETE", f"{budgets}/held").status == 200
    server.until(lambda: scheduled(server) == {"urgent": True})


def test_preempts_no_pod_for_a_claim_that_a_quota_refuses(
    server: ApiServer, controller: Path
) -> None:
    """The scheduler creates the claim, and asks the quota, once the victim has gone."""
    quotas = f"/api/v1/namespaces/{NAMESPACE}/resourcequotas"
    name = "divvy-gpu.deviceclass.resource.k8s.io/devices"
    run(server, "held", "low", "divvy-gpu")
    server.until(lambda: scheduled(server) == {"held": True})
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "divvy-gpu"}}]
    idle = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "idle"},
        "spec": {"devices": {"requests": requests}},
    }
    claims = f"{CLAIMS}/namespaces/{NAMESPACE}/resourceclaims"
    assert server.send("POST", claims, idle).status == 201
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {name: "1"}},
    }
    assert server.send("POST", quotas, quota).status == 201
    used = {"hard": {name: "1"}, "used": {name: "2"}}
    server.until(lambda: server.send("GET", f"{quotas}/gpus").body.get("status") == used)
    create(server, "urgent", "urgent", {"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    refusal = f"the ResourceQuota gpus has no {name} left for its claim"
    server.until(lambda: f"team/urgent: no pod is preempted: {refusal}" in controller.read_text())
    assert scheduled(server) == {"held": True, "urgent": False}
    # What the victim has counts no more when it has gone.
    assert server.send("DELETE", f"{claims}/idle").status == 200
    server.until(lambda: scheduled(server) == {"urgent": True})
    assert server.send("DELETE", f"{quotas}/gpus").status == 200


def test_lets_a_pod_wait_that_may_not_preempt(server: ApiServer, controller: Path) -> None:
    run(server, "held", "low", "divvy-gpu")
    server.until(lambda: scheduled(server) == {"held": True})
    run(server, "patient", "patient", "divvy-gpu")
    run(server, "equal", "low", "divvy-gpu")
    for name in ("patient", "equal"):
        server.until(lambda: f"team/{name}: no pod is preempted" in controller.read_text())  # noqa: B023
    assert scheduled(server) == {"held": True, "patient": False, "equal": False}


def test_grants_its_account_only_the_rights_it_needs(server: ApiServer) -> None:
    account = f"divvy-system:{PREEMPTION}"
    for path in ("/api/v1/pods", "/api/v1/nodes", f"{CLAIMS}/resourceslices"):
        assert server.send("GET", path, account=account).status == 200
    for method, path in (
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces/divvy-system/configmaps"),
        ("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/any"),
        ("DELETE", f"{CLAIMS}/namespaces/{NAMESPACE}/resourceclaims/any"),
    ):
        assert server.send(method, path, account=account).status == 403
