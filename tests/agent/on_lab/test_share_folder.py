"""A restricted pod with a limited share cannot fill its node, and keeps its files over agents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.deployment import Deployment
from tests.limited_shares import limited_shares
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]
NODE, POOL = "gpu-t4", "notebooks"
FILLER = r"""
import ctypes as c, errno, json, os, time
libc, folder = c.CDLL(None, use_errno=True), "/usr/lib/divvy/share"
own = [f"{folder}/{name}" for name in sorted(os.listdir(folder))]
own = [path for path in own if os.access(path, os.W_OK) and os.path.isfile(path)]
took = {}
for path in own:
    file = os.open(path, os.O_RDWR)
    for mode in (0, 1):
        done = libc.fallocate(file, mode, c.c_long(0), c.c_long(3 << 30))
        took[f"{os.path.basename(path)} {mode}"] = 0 if done == 0 else c.get_errno()
    try:
        os.pwrite(file, bytes(4096), 1 << 20)
        took[f"{os.path.basename(path)} write"] = 0
    except OSError as error:
        took[f"{os.path.basename(path)} write"] = error.errno
code = c.CDLL("libcuda.so.1").cuInit(0)
print(json.dumps([len(own), sorted(set(took.values())), code]), flush=True)
while not os.path.exists("/tmp/again"):
    time.sleep(0.2)
"""


def filler(lab: RunningLab, image: str) -> dict[str, Any]:
    container = {
        "image": image,
        "command": ["python3", "-c", FILLER],
        "resources": {"limits": {"nvidia.com/gpu.shared": 1, "memory": "64Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    selector = {"kubernetes.io/hostname": NODE}
    return lab.pod("filler", "", container=container, nodeSelector=selector, restartPolicy="Always")


def test_refuses_a_restricted_pod_the_nodes_disk(deployed: Deployment) -> None:
    lab = deployed.lab
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    with limited_shares(deployed, POOL), lab.namespace(labels) as namespace:
        pod = filler(lab, deployed.base_image)
        pod["metadata"]["namespace"] = namespace
        lab.apply(pod)

        def output() -> str:
            return lab.try_kubectl("logs", "filler", f"-n={namespace}").stdout

        def restarts() -> int:
            (status,) = lab.get("pod", "filler", f"-n={namespace}")["status"]["containerStatuses"]
            return int(status["restartCount"])

        lab.until(lambda: bool(output()), 120)
        # Account and page; "No space left on device"; the limiter takes them.
        assert json.loads(output()) == [2, [28], 0]
        script = (
            "stat --file-system --format=%T /run/divvy/tenants; du -sm /run/divvy /var/lib/divvy"
        )
        kind, *sizes = deployed.on_node(NODE, "sh", "-c", script).splitlines()
        assert kind == "tmpfs"
        assert all(int(line.split()[0]) < 64 for line in sizes)
        # A container that starts again after a new agent has come has the same files.
        account = "stat --format=%i /run/divvy/tenants/shares/*/account"
        before = deployed.on_node(NODE, "sh", "-c", account)
        label = "app.kubernetes.io/component=agent"
        lab.kubectl(
            *("delete", "pod", "-n=divvy-system", f"--selector={label}"),
            *(f"--field-selector=spec.nodeName={NODE}", "--wait"),
        )
        deployed.until(lambda: deployed.status(NODE).get("state") == "Ready", 120)
        lab.kubectl("exec", "filler", f"-n={namespace}", "--", "touch", "/tmp/again")
        lab.until(lambda: restarts() == 1 and bool(output()), 120)
        assert json.loads(output()) == [2, [28], 0]
        assert deployed.on_node(NODE, "sh", "-c", account) == before
