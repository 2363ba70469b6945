"""NodeRuntime against a real containerd, in each configuration version, with a pod running."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.deployment import REPOSITORY
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


def prepare(lab: RunningLab) -> str:
    path = f"PYTHONPATH={REPOSITORY}"
    return on_node(lab, "/usr/bin/env", path, sys.executable, "-c", PREPARE).strip()


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
        pod = lab.pod("tenant", "sleep 1000", node=NODE)
        pod["metadata"]["namespace"] = namespace
        lab.apply(pod)
        lab.until(lambda: phase(lab, namespace) == "Running")
        uid = lab.get("pod", "tenant", f"-n={namespace}")["metadata"]["uid"]
        assert "enable_cdi is off" in prepare(lab)
        assert "enable_cdi = true" in on_node(lab, "containerd", "config", "dump")
        found = lab.get("pod", "tenant", f"-n={namespace}")
        assert (found["metadata"]["uid"], found["status"]["phase"]) == (uid, "Running")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 0
        assert prepare(lab) == "()"


def phase(lab: RunningLab, namespace: str) -> str:
    return str(lab.get("pod", "tenant", f"-n={namespace}")["status"].get("phase"))
