"""Agents that are gone, cannot ask the kubelet, or cannot be reached."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.conformance.faults.fault import A100, H100, T4, Options
from tests.conformance.scene import Scene
from tests.deployment import NAMESPACE


@contextmanager
def no_agents(scene: Scene) -> Iterator[Options]:
    path = "/spec/template/spec/nodeSelector/divvy.test~1nowhere"
    nodes = (A100, H100, T4)
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"divvy.test/nowhere": "yes"}}}}}
    scene.patch_agents("strategic", selector)
    try:
        scene.deployed.until(lambda: not any(_has_agent(scene, node) for node in nodes))
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {}, 60)
        yield {}
    finally:
        scene.patch_agents("json", [{"op": "remove", "path": path}])
        scene.deployed.until(lambda: all(_has_agent(scene, node) for node in nodes), 60)
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)


def _has_agent(scene: Scene, node: str) -> bool:
    return agent_id(scene, node) is not None


def agent_id(scene: Scene, node: str) -> str | None:
    try:
        return str(scene.deployed.agent(node)["metadata"]["uid"])
    except AssertionError:
        return None


@contextmanager
def no_pod_resources(scene: Scene) -> Iterator[Options]:
    _move_pod_resources(scene, "/run/nothing-is-here")
    try:
        yield {}
    finally:
        _move_pod_resources(scene, "/var/lib/kubelet/pod-resources")


def _move_pod_resources(scene: Scene, folder: str) -> None:
    volumes = [{"name": "pod-resources", "hostPath": {"path": folder}}]
    scene.patch_agents("strategic", {"spec": {"template": {"spec": {"volumes": volumes}}}})
    scene.replace_agents()
    scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)


@contextmanager
def misled_service(scene: Scene) -> Iterator[Options]:
    """Let the agents' Service select pods that are not there."""
    lab, path = scene.deployed.lab, "/spec/selector/divvy.test~1nowhere"

    def patch(change: dict[str, str]) -> None:
        text = json.dumps([{**change, "path": path}])
        lab.kubectl(
            "patch", "service/divvy-agent", f"-n={NAMESPACE}", "--type=json", "--patch", text
        )

    def endpoints() -> list[Any]:
        label = "--selector=kubernetes.io/service-name=divvy-agent"
        endpoint_slices = lab.get("endpointslices", f"-n={NAMESPACE}", label)["items"]
        return [
            endpoint
            for endpoint_slice in endpoint_slices
            for endpoint in endpoint_slice.get("endpoints") or []
        ]

    patch({"op": "add", "value": "yes"})
    try:
        scene.deployed.until(lambda: not endpoints())
        yield {}
    finally:
        patch({"op": "remove"})
        scene.deployed.until(lambda: bool(endpoints()))
