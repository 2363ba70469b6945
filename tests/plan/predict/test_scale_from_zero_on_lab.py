"""Pools without nodes get one for a waiting pod, from `divvy plan -o slices` alone.

No autoscaler can run here, so a small stand-in does what Cluster Autoscaler does: it asks a
scheduler, here the stock one at an API server of its own, whether a waiting pod would fit on the
node that a pool's template describes, and has the cloud, here the lab, make such a node. Of Divvy
it knows nothing: it reads the templates, and the pods, claims and device classes of the cluster.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.bare_cluster import bare_cluster
from tests.claim_templates.stock_scheduler import running_scheduler
from tests.deployment import Deployment
from tests.plan.predict.test_node_templates import OF_THE_DRIVER
from tests.render.objects.claims.api_server import ApiServer
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

RESOURCE_API = "/apis/resource.k8s.io/v1"
POOL_LABEL = "node.kubernetes.io/instance-type"
NODES = {"notebooks": "gpu-t4", "sizes": "gpu-by-size", "experiments": "gpu-on-demand"}
# By device plugin, by size, by MIG. The size fits on an L40S alone; of the other two kinds nodes
# of other pools have some, so that these pods name the pool by its label.
PODS: dict[str, tuple[dict[str, int], dict[str, str]]] = {
    "notebooks": ({"nvidia.com/gpu.shared": 1}, {POOL_LABEL: "gpu-t4"}),
    "sizes": ({"nvidia.com/gpumem": 44_000}, {}),
    "experiments": ({"nvidia.com/mig-1g.5gb": 1}, {POOL_LABEL: "gpu-on-demand"}),
}


@dataclass(frozen=True)
class Autoscaler:
    """A stand-in; ``scheduling`` is the API server on which it tries pods."""

    scheduling: ApiServer
    lab: RunningLab

    def learn(self, templates: list[dict[str, Any]]) -> None:
        """Make the nodes of the templates, as large as a cloud's, and the cluster's classes."""
        listed = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
        classes = self.lab.get("deviceclasses")["items"]
        self.scheduling.apply(*(_of_user(item | listed) for item in classes))
        for template in templates:
            if template["kind"] == "Node":
                self._make_node(template)
            else:
                answer = self.scheduling.send("POST", f"{RESOURCE_API}/resourceslices", template)
                assert answer.status == 201, answer.body

    def _make_node(self, template: dict[str, Any]) -> None:
        created = self.scheduling.send("POST", "/api/v1/nodes", template).body
        quantities = {"cpu": "8", "memory": "32Gi", "pods": "110"}
        created["status"] = {
            "capacity": template["status"]["capacity"] | quantities,
            "allocatable": template["status"]["allocatable"] | quantities,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        path = f"/api/v1/nodes/{created['metadata']['name']}"
        answer = self.scheduling.send("PUT", f"{path}/status", created)
        # No kubelet reports from this node: the taint of a node that is not ready would stay.
        answer.body["spec"].pop("taints", None)
        assert self.scheduling.send("PUT", path, answer.body).status == 200

    def pool_for(self, pod: dict[str, Any]) -> str | None:
        """Return the pool on whose node a waiting pod would fit, None if it fits on none."""
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for entry in pod["spec"].get("resourceClaims", ()):
            template = self.lab.get(
                "resourceclaimtemplate", entry["resourceClaimTemplateName"], f"-n={namespace}"
            )
            self.scheduling.apply(_of_user(template, "default"))
        tried = _of_user(pod, "default")
        for key in ("serviceAccount", "serviceAccountName", "volumes"):
            tried["spec"].pop(key, None)
        for container in tried["spec"]["containers"]:
            container.pop("volumeMounts", None)
        answer = self.scheduling.send("POST", "/api/v1/namespaces/default/pods", tried)
        assert answer.status == 201, answer.body
        path = f"/api/v1/namespaces/default/pods/{name}"
        self.scheduling.until(lambda: _has_verdict(self.scheduling.send("GET", path).body))
        # A scheduler that has not seen all slices and claims yet tries the pod once more.
        with contextlib.suppress(AssertionError):
            self.scheduling.until(
                lambda: "nodeName" in self.scheduling.send("GET", path).body["spec"], 10
            )
        node: str | None = self.scheduling.send("GET", path).body["spec"].get("nodeName")
        return node


def _of_user(obj: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Return an object without what an API server has filled in."""
    mine: dict[str, Any] = copy.deepcopy(
        {key: obj[key] for key in ("apiVersion", "kind", "spec") if key in obj}
    )
    mine["metadata"] = {
        key: value
        for key, value in obj["metadata"].items()
        if key in ("name", "labels", "annotations")
    } | ({"namespace": namespace} if namespace else {})
    return mine


def _has_verdict(pod: dict[str, Any]) -> bool:
    """Tell whether the scheduler has bound a pod, or looked at all of its claims in vain."""
    if pod["spec"].get("nodeName"):
        return True
    claim_count = len(pod.get("status", {}).get("resourceClaimStatuses", ()))
    return claim_count == len(pod["spec"].get("resourceClaims", ())) and _is_unschedulable(pod)


def _is_unschedulable(pod: dict[str, Any]) -> bool:
    return any(
        condition["type"] == "PodScheduled"
        and condition.get("reason") == "Unschedulable"
        and "claim to be created" not in condition["message"]
        for condition in pod.get("status", {}).get("conditions", ())
    )


@pytest.fixture
def without_nodes(claims: Deployment) -> Iterator[Deployment]:
    """Take the nodes of three pools away, disks and all, and give back whichever are missing."""
    lab = claims.lab
    for node in NODES.values():
        lab.machine(node).kill()
        shutil.rmtree(lab.machine(node).directory)
        lab.kubectl("delete", "node", node)
    claims.until(lambda: not _slices(lab), 90)
    yield claims
    for node in NODES.values():
        if not lab.machine(node).running():
            add_node(lab, node)
    claims.until(lambda: _ready(lab) >= {*NODES.values()}, 90)


def add_node(lab: RunningLab, name: str) -> None:
    """Make a node, as a cloud does."""
    lab.machine(name).boot()
    lab.machine(name).join()


def test_adds_one_node_of_the_right_pool_for_each_kind_of_waiting_pod(
    without_nodes: Deployment, tmp_path: Path
) -> None:
    lab = without_nodes.lab
    shown = without_nodes.divvy("plan", "--stack=lab", "--output=slices")
    templates = [template for template in yaml.safe_load_all(shown) if _pool_of(template) in NODES]
    with (
        bare_cluster("resourceclaim-controller") as bare,
        lab.namespace() as namespace,
        running_scheduler(server := ApiServer(bare), tmp_path),
    ):
        autoscaler = Autoscaler(server, lab)
        autoscaler.learn(templates)
        too_large = {"nvidia.com/gpumem": 60_000}
        for name, (limits, selector) in {**PODS, "too-large": (too_large, {})}.items():
            pod = lab.pod(
                name,
                "sleep infinity",
                container={"resources": {"limits": {key: str(limits[key]) for key in limits}}},
                nodeSelector=selector,
            )
            pod["metadata"]["namespace"] = namespace
            lab.apply(pod)
        path = f"-n={namespace}"
        for name in PODS:
            lab.until(lambda name=name: _is_unschedulable(lab.get("pod", name, path)))  # type: ignore[misc]
            before = _ready(lab)
            pool = autoscaler.pool_for(lab.get("pod", name, path))
            assert pool == name
            add_node(lab, NODES[pool])
            lab.until(lambda name=name: _runs(lab.get("pod", name, path)), 180)  # type: ignore[misc]
            assert lab.get("pod", name, path)["spec"]["nodeName"] == NODES[pool]
            assert _ready(lab) - before == {NODES[pool]}
        lab.until(lambda: _is_unschedulable(lab.get("pod", "too-large", path)))
        assert autoscaler.pool_for(lab.get("pod", "too-large", path)) is None
        for pool in ("sizes", "experiments"):
            described = [
                template["spec"]
                for template in templates
                if template["kind"] == "ResourceSlice" and _pool_of(template) == pool
            ]
            published = json.dumps(_slices(lab, NODES[pool]))
            for index, uuid in _uuids(without_nodes, NODES[pool]).items():
                published = published.replace(uuid.lower(), f"gpu-{index}")
            assert _devices(described) == _devices(json.loads(published))
        server.close()


def _pool_of(template: dict[str, Any]) -> str:
    name: str = template["metadata"]["name"]
    return name if template["kind"] == "Node" else str(template["spec"]["nodeName"])


def _slices(lab: RunningLab, *nodes: str) -> list[dict[str, Any]]:
    """Return the specifications of the slices of nodes, by default of those of NODES."""
    return [
        item["spec"]
        for item in lab.get("resourceslices")["items"]
        if item["spec"].get("nodeName") in (nodes or tuple(NODES.values()))
    ]


def _uuids(deployed: Deployment, node: str) -> dict[str, str]:
    """Return the UUIDs of a node's GPUs by index."""
    query = ("nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader")
    lines = deployed.on_node(node, *query).splitlines()
    return dict(line.split(", ") for line in lines)


def _devices(specs: list[dict[str, Any]]) -> list[str]:
    """Return devices and counters as text, without what the driver alone can tell."""
    texts = []
    for spec in specs:
        for device in spec.get("devices", ()):
            kept = copy.deepcopy(device)
            # The plan is for real GPUs; the lab's driver is simulated.
            for attribute in OF_THE_DRIVER | {"simulated"}:
                kept.get("attributes", {}).pop(attribute, None)
            texts.append(json.dumps(kept, sort_keys=True))
        texts += [
            json.dumps(counters, sort_keys=True) for counters in spec.get("sharedCounters", ())
        ]
    return sorted(texts)


def _runs(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _ready(lab: RunningLab) -> set[str]:
    """Return the names of the nodes that are ready."""
    return {
        node["metadata"]["name"]
        for node in lab.get("nodes")["items"]
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", ())
        )
    }
