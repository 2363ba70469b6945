"""NodeRuntime against a real containerd, in each configuration version, with a pod running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from divvy.lab.paths import REPOSITORY
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
NODE = "cpu-1"
FILE, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/90-divvy.toml"
OLD_TABLE, NEW_TABLE = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
PREPARE = (
    "from divvy.agent.node_runtime.host import Host\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "print(prepare_containerd(Host()))"
)


def on_node(lab: RunningLab, *command: str, text: str | None = None) -> str:
    entered = lab.machine(NODE).enter_command(command)
    done = subprocess.run(entered, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_on_node(lab: RunningLab, program: str) -> str:
    path = f"PYTHONPATH={REPOSITORY}"
    return on_node(lab, "/usr/bin/env", path, sys.executable, "-c", program).strip()


@pytest.fixture
def restored(lab: RunningLab) -> Iterator[RunningLab]:
    before = on_node(lab, "cat", FILE)
    yield lab
    on_node(lab, "rm", "-f", DROP_IN)
    on_node(lab, "tee", FILE, text=before)
    restart(lab)


def restart(lab: RunningLab) -> None:
    on_node(lab, "pkill", "-TERM", "-x", "containerd")
    lab.until(lambda: "io.containerd" in try_plugins(lab))


def try_plugins(lab: RunningLab) -> str:
    entered = lab.machine(NODE).enter_command(["ctr", "--connect-timeout=1s", "plugins", "ls"])
    return subprocess.run(entered, capture_output=True, text=True, check=False).stdout


def run_tenant(lab: RunningLab, namespace: str, name: str) -> dict[str, Any]:
    """Create a pod on the node and return it as it runs."""
    wish = lab.pod(name, "sleep 1000", node=NODE)
    wish["metadata"]["namespace"] = namespace
    lab.apply(wish)

    def found() -> dict[str, Any]:
        tenant: dict[str, Any] = lab.get("pod", name, f"-n={namespace}")
        return tenant

    lab.until(lambda: found()["status"].get("phase") == "Running")
    return found()


@pytest.mark.parametrize("version", [2, 3, 4])
def test_cdi_is_switched_on_while_pods_run(restored: RunningLab, version: int) -> None:
    lab = restored
    before = on_node(lab, "cat", FILE)
    table = OLD_TABLE if version == 2 else NEW_TABLE
    off = before.replace("version = 4", f"version = {version}", 1)
    if version == 2:
        pause = before.split('sandbox = "')[1].split('"')[0]
        off = (
            f'version = 2\n[plugins."{table}"]\n  sandbox_image = "{pause}"\n'
            f"  restrict_oom_score_adj = true\n  enable_cdi = true\n"
            f'  [plugins."{table}".cni]\n    bin_dir = "/usr/lib/cni"\n'
            f'  [plugins."{table}".registry]\n    config_path = "/etc/containerd/certs.d"\n'
        )
    off = off.replace("enable_cdi = true", "enable_cdi = false")
    assert "enable_cdi = false" in off
    on_node(lab, "tee", FILE, text=off)
    restart(lab)
    with lab.namespace() as namespace:
        uid = run_tenant(lab, namespace, "tenant")["metadata"]["uid"]
        assert "enable_cdi is off" in python_on_node(lab, PREPARE)
        assert "enable_cdi = true" in on_node(lab, "containerd", "config", "dump")
        found = lab.get("pod", "tenant", f"-n={namespace}")
        assert (found["metadata"]["uid"], found["status"]["phase"]) == (uid, "Running")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 0
        assert python_on_node(lab, PREPARE) == "()"


FAULTY = (
    "from dataclasses import replace\n"
    "from divvy.agent.node_runtime import containerd, host\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "right = containerd.files_for\n"
    # containerd reads this and shows it in its dump, but cannot start with it.
    "def wrong(text):\n"
    "    files = right(text)\n"
    "    return replace(files, drop_in='root = \"/proc/none\"\\n' + files.drop_in)\n"
    "containerd.files_for = wrong\n"
    "class Hasty(host.Host):\n"
    "    def restart_containerd(self):\n"
    "        super().restart_containerd(4.0)\n"
    "try:\n"
    "    prepare_containerd(Hasty())\n"
    "except host.HostFailed as failure:\n"
    "    print('failed:', failure)\n"
)


def test_a_containerd_that_cannot_start_gets_its_old_files_and_pods_run_on(
    restored: RunningLab,
) -> None:
    lab = restored
    off = on_node(lab, "cat", FILE).replace("enable_cdi = true", "enable_cdi = false")
    on_node(lab, "tee", FILE, text=off)
    restart(lab)
    with lab.namespace() as namespace:
        before = run_tenant(lab, namespace, "tenant")["status"]
        said = python_on_node(lab, FAULTY)
        assert said.startswith("failed:")
        assert on_node(lab, "cat", FILE) == off
        assert on_node(lab, "sh", "-c", f"ls {DROP_IN} 2>&1 || true").count("No such file") == 1
        assert "io.containerd" in try_plugins(lab)
        found = lab.get("pod", "tenant", f"-n={namespace}")["status"]
        assert found["containerStatuses"] == before["containerStatuses"]
        # And the node is as good as before: a new pod starts.
        run_tenant(lab, namespace, "next")


TURN = """
import os, sys, time
from lightkube import Client
from divvy.agent.node_runtime.turns import turn
node, namespace = sys.argv[1:]
for _ in range(3):
    with turn(Client(namespace=namespace), node, namespace, retry=0.05):
        began = time.monotonic()
        time.sleep(0.2)
        print(began, time.monotonic(), flush=True)
"""


def start_turns(lab: RunningLab, node: str, namespace: str) -> subprocess.Popen[str]:
    """Start a node's three turns; it tells when each began and ended."""
    return subprocess.Popen(
        [sys.executable, "-c", TURN, node, namespace],
        cwd=REPOSITORY,
        env={**os.environ, "KUBECONFIG": str(lab.kubeconfig)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_nodes_never_change_their_runtimes_at_once(lab: RunningLab) -> None:
    with lab.namespace() as namespace:
        nodes = [start_turns(lab, node, namespace) for node in ("one", "two", "three")]
        inside = []
        for node in nodes:
            said, _ = node.communicate(timeout=60)
            assert node.returncode == 0
            inside += [tuple(map(float, line.split())) for line in said.splitlines()]
        assert len(inside) == 9
        inside.sort()
        assert all(out <= into for (_, out), (into, _) in pairwise(inside))


def test_a_node_that_died_inside_loses_its_turn(lab: RunningLab) -> None:
    with lab.namespace() as namespace:
        spec = {
            "holderIdentity": "dead",
            "leaseDurationSeconds": 1,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        }
        lab.apply(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "divvy-node-runtime", "namespace": namespace},
                "spec": spec,
            }
        )
        node = start_turns(lab, "one", namespace)
        said, _ = node.communicate(timeout=30)
        assert node.returncode == 0
        assert len(said.splitlines()) == 3
