"""A pod of a restricted namespace that looks like containerd stays in its namespaces.

Its process is called containerd, has a lower number than the real one, and its program lies where
on the node there is a script of the tenant's, in an emptyDir.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from lab.cluster.paths import REPOSITORY
from tests.agent.node_runtime.on_node import NODE
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
MARK = "/root/escaped"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
# Busybox is one program: its first argument says which; the kernel names the process by its file.
SCRIPT = f"""
d=/var/lib/kubelet/pods/$POD_UID/volumes/kubernetes.io~empty-dir/data
mkdir -p $d && cp /bin/busybox $d/containerd
printf '#!/bin/sh\\n{{ id; echo "run as $0 $*"; }} > {MARK}\\nexit 1\\n' > /data/containerd
chmod 755 /data/containerd
exec -a sleep $d/containerd 100000
"""
PREPARE = (
    "from divvy.agent.node_runtime.host import Host\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "print(prepare_containerd(Host()))"
)
TAKE = (
    "import sys\n"
    "from pathlib import Path\n"
    "from divvy.agent.node_runtime.host_process import host_process\n"
    "with host_process(Path('/proc/1/root'), int(sys.argv[1])) as process:\n"
    "    print(process.program)"
)


def on_node(lab: RunningLab, *command: str) -> subprocess.CompletedProcess[str]:
    entered = lab.machine(NODE).enter_command(command)
    return subprocess.run(entered, capture_output=True, text=True, check=False)


def python_on_node(
    lab: RunningLab, program: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    path = f"PYTHONPATH={REPOSITORY}"
    return on_node(lab, "/usr/bin/env", path, sys.executable, "-c", program, *arguments)


def tenant(lab: RunningLab) -> dict[str, Any]:
    pod = lab.pod("looks-like-containerd", SCRIPT, node=NODE)
    spec = pod["spec"]
    spec["automountServiceAccountToken"] = False
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "fsGroup": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec["volumes"] = [{"name": name, "emptyDir": {}} for name in ("data", "tree")]
    spec["containers"][0].update(
        securityContext={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        env=[{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}],
        volumeMounts=[
            {"name": "data", "mountPath": "/data"},
            {"name": "tree", "mountPath": "/var/lib/kubelet"},
        ],
    )
    return pod


@pytest.fixture
def in_wait(restored: RunningLab) -> Iterator[int]:
    """Give the number of a tenant's process that a look at names finds before the real one."""
    lab = restored
    machine = lab.machine(NODE)

    def waiting(uid: str) -> list[int]:
        # Not by name alone: containerd's own children have it too, for a moment.
        script = "for p in $(pgrep -x containerd); do echo $p $(readlink /proc/$p/exe); done"
        lines = on_node(lab, "sh", "-c", script).stdout.splitlines()
        return [int(line.split()[0]) for line in lines if uid in line]

    def real() -> int:
        return int(machine.ask({"do": "status"})["containerd"]["pid"])

    with lab.namespace(RESTRICTED) as namespace:
        lab.kubectl("apply", f"-n={namespace}", "-f=-", stdin=json.dumps(tenant(lab)))
        uid = lab.get("pod", "looks-like-containerd", f"-n={namespace}")["metadata"]["uid"]
        lab.until(lambda: bool(waiting(uid)))
        (process,) = waiting(uid)
        machine.restart("containerd")
        lab.until(lambda: on_node(lab, "ctr", "--connect-timeout=1s", "version").returncode == 0)
        assert process < real()
        yield process
    on_node(lab, "rm", "-f", MARK)


def test_runs_the_hosts_program_and_not_a_tenants(lab: RunningLab, in_wait: int) -> None:
    done = python_on_node(lab, PREPARE)
    assert on_node(lab, "cat", MARK).stdout == ""
    assert (done.returncode, done.stdout.strip()) == (0, "()"), done.stderr
    refused = python_on_node(lab, TAKE, str(in_wait))
    assert refused.returncode != 0
    error = refused.stderr.strip().splitlines()[-1]
    assert f"process {in_wait} is not the host's container runtime" in error
    assert "not in the host's mnt namespace, as a container's process is not" in error
