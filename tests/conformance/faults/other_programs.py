"""What other programs of the cluster do: plugins, DRA drivers, webhooks."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
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
    group = "admissionregistration.k8s.io/v1"
    name = "correct-requests"
    resources = "/spec/containers/0/resources"
    policy = {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
                 "operations": ["CREATE"]},
            ]
        },
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "mutations": [
            {
                "patchType": "JSONPatch",
                "jsonPatch": {"expression": f'[JSONPatch{{op: "remove", path: "{resources}"}}]'},
            }
        ],
    }  # fmt: skip
    kinds = {
        "MutatingAdmissionPolicy": policy,
        "MutatingAdmissionPolicyBinding": {"policyName": name},
    }
    lab = scene.deployed.lab
    lab.apply(
        *(
            {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, spec in kinds.items()
        )
    )
    wrong = lab.pod("wrong", "true", container={"resources": {"limits": {"nvidia.com/gpu": "0.5"}}})
    try:
        # The API server takes a moment to take note of a policy.
        scene.deployed.until(lambda: _is_admitted(scene, wrong))
        yield {}
    finally:
        for kind in kinds:
            lab.kubectl("delete", kind.lower(), name)
        scene.deployed.until(lambda: not _is_admitted(scene, wrong))


def _is_admitted(scene: Scene, pod: dict[str, Any]) -> bool:
    done = scene.deployed.lab.try_kubectl(
        "create", "--dry-run=server", "--filename=-", stdin=json.dumps(pod)
    )
    return done.returncode == 0


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
