"""What other programs of the cluster do: plugins, DRA drivers, webhooks."""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tests.conformance.faults.fault import H100, T4, Options
from tests.conformance.scene import Scene


@contextmanager
def strange_resource(scene: Scene) -> Iterator[Options]:
    path = "/status/capacity/nvidia.com~1vgpu"
    _patch_status(scene, [{"op": "add", "path": path, "value": "3"}])
    name = "nvidia.com/vgpu"
    try:
        scene.deployed.until(lambda: scene.deployed.offered(T4).get(name) == 3)
        yield {}
    finally:
        _patch_status(scene, [{"op": "remove", "path": path}])
        scene.deployed.until(lambda: name not in scene.deployed.offered(T4))


def _patch_status(scene: Scene, patch: list[dict[str, str]]) -> None:
    scene.deployed.lab.kubectl(
        "patch", "node", T4, "--subresource=status", "--type=json", "--patch", json.dumps(patch)
    )


@contextmanager
def dra_driver(scene: Scene) -> Iterator[Options]:
    lab, name = scene.deployed.lab, "of-another-driver"
    device = {"name": "gpu-0", "attributes": {"type": {"string": "gpu"}}}
    spec = {
        "driver": "gpu.nvidia.com",
        "nodeName": H100,
        "pool": {"name": H100, "generation": 1, "resourceSliceCount": 1},
        "devices": [device],
    }
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    lab.apply({**kind, "metadata": {"name": name}, "spec": spec})
    try:
        yield {}
    finally:
        lab.kubectl("delete", "resourceslice", name)


@contextmanager
def corrected_requests(scene: Scene) -> Iterator[Options]:
    """Let an admission policy take wrong requests away before the API server looks at them."""
    patch = 'JSONPatch{op: "remove", path: "/spec/containers/0/resources"}'
    wrong = scene.deployed.lab.pod(
        "wrong", "true", container={"resources": {"limits": {"nvidia.com/gpu": "0.5"}}}
    )
    with mutated(scene, "pods", patch, lambda: _created(scene, wrong) is not None):
        yield {}


@contextmanager
def devices_for_all_containers(scene: Scene) -> Iterator[Options]:
    """Let an admission policy copy the request of a pod's second container to its first."""
    patches = ", ".join(
        f'JSONPatch{{op: "add", path: "/spec/containers/0/resources/{what}/nvidia.com~1gpu", '
        'value: "1"}'
        for what in ("limits", "requests")
    )
    with mutated(scene, "pods", patches, partial(_gives_both, scene), _TWO_CONTAINERS):
        yield {}


@contextmanager
def claims_for_all_containers(scene: Scene) -> Iterator[None]:
    """Let an admission policy give the claim of a pod's second container to its first."""
    patch = (
        'JSONPatch{op: "add", path: "/spec/containers/0/resources/claims", '
        'value: [{"name": "gpu"}]}'
    )
    # A pod without this claim is refused once its container has it.
    pod = _two_containers(scene)
    with mutated(scene, "pods", patch, lambda: _created(scene, pod) is None, _TWO_CONTAINERS):
        yield


_TWO_CONTAINERS = "object.spec.containers.size() == 2"


def _two_containers(scene: Scene) -> dict[str, Any]:
    pod = scene.deployed.lab.pod("two", "true", container={"resources": {"limits": {"cpu": "1"}}})
    pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "second"})
    return pod


def _gives_both(scene: Scene) -> bool:
    pod = _two_containers(scene)
    created = _created(scene, pod)
    limits = (created or pod)["spec"]["containers"][0]["resources"]["limits"]
    return "nvidia.com/gpu" in limits


@contextmanager
def another_cuda_version(scene: Scene) -> Iterator[Options]:
    """Let an admission policy replace what the agent writes into a label of its node."""
    label = "nvidia.com/cuda.runtime-version.full"
    patch = (
        f'JSONPatch{{op: "replace", path: "/metadata/labels/{label.replace("/", "~1")}", '
        'value: "11.4"}'
    )

    def is_rewritten() -> bool:
        scene.deployed.lab.kubectl("annotate", "node", H100, "example.com/changed=", "--overwrite")
        labels = scene.deployed.lab.get("node", H100)["metadata"]["labels"]
        return str(labels[label]) == "11.4"

    with mutated(scene, "nodes", patch, is_rewritten, f"object.metadata.name == '{H100}'"):
        yield {}
    scene.deployed.lab.kubectl("annotate", "node", H100, "example.com/changed-")
    scene.deployed.until(
        lambda: scene.deployed.lab.get("node", H100)["metadata"]["labels"][label] != "11.4", 90
    )


@contextmanager
def mutated(
    scene: Scene, resource: str, patches: str, holds: Callable[[], bool], condition: str = "true"
) -> Iterator[None]:
    """Let an admission policy change objects for a while; ``holds`` tells whether it does."""
    name = "of-another-program"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"]}
    policy = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": [resource]}]},
        "matchConditions": [{"name": "chosen", "expression": condition}],
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "JSONPatch", "jsonPatch": {"expression": f"[{patches}]"}},
        ],
    }
    kinds = {
        "MutatingAdmissionPolicy": policy,
        "MutatingAdmissionPolicyBinding": {"policyName": name},
    }
    lab = scene.deployed.lab
    lab.apply(
        *(
            {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
             "metadata": {"name": name}, "spec": spec}
            for kind, spec in kinds.items()
        )
    )  # fmt: skip
    try:
        # The API server takes a moment to take note of a policy.
        scene.deployed.until(holds)
        yield
    finally:
        for kind in kinds:
            lab.kubectl("delete", kind.lower(), name)
        if resource == "pods":
            scene.deployed.until(lambda: not holds())


def _created(scene: Scene, pod: dict[str, Any]) -> dict[str, Any] | None:
    """Return a pod as the API server would create it, None if it refuses."""
    done = scene.deployed.lab.try_kubectl(
        "create", "--dry-run=server", "--output=json", "--filename=-", stdin=json.dumps(pod)
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


_SERVE = """
import os, socket, time
path = "/var/lib/kubelet/device-plugins/nvidia-gpu.sock"
with socket.socket(socket.AF_UNIX) as server:
    server.bind(path)
    server.listen()
    while os.path.exists(path):
        time.sleep(0.2)
"""


@contextmanager
def device_plugin(scene: Scene) -> Iterator[Options]:
    """Listen where NVIDIA's device plugin would; the agent steps back."""
    path = "/var/lib/kubelet/device-plugins/nvidia-gpu.sock"
    command = scene.deployed.lab.machine(H100).enter_command(["python3", "-c", _SERVE])
    with subprocess.Popen(command) as serving:
        try:
            scene.deployed.until(lambda: scene.deployed.offered(H100) == {}, 60)
            yield {}
        finally:
            scene.deployed.on_node(H100, "rm", "-f", path)
            serving.wait(10)
    scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 60)
