"""NodeRuntime against a real containerd, in each configuration version, with a pod running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from lab.cluster.paths import REPOSITORY
from tests.agent.node_runtime.on_node import (
    ADMIN,
    DROP_IN,
    FILE,
    NODE,
    REAL,
    on_node,
    python_on_node,
    restart,
    try_plugins,
)
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
OLD_TABLE, NEW_TABLE = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
PREPARE = (
    "from divvy.agent.node_runtime.host import Host\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "print(prepare_containerd(Host()))"
)


def run_tenant(lab: RunningLab, namespace: str, name: str) -> dict[str, Any]:
    """Create a pod on the node and return it as it runs."""
    manifest = lab.pod(name, "sleep 1000", node=NODE)
    manifest["metadata"]["namespace"] = namespace
    lab.apply(manifest)

    def tenant() -> dict[str, Any]:
        tenant: dict[str, Any] = lab.get("pod", name, f"-n={namespace}")
        return tenant

    lab.until(lambda: tenant()["status"].get("phase") == "Running")
    return tenant()


@pytest.mark.parametrize("version", [2, 3, 4])
def test_enables_cdi_while_pods_run(restored: RunningLab, version: int) -> None:
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
        tenant = lab.get("pod", "tenant", f"-n={namespace}")
        assert (tenant["metadata"]["uid"], tenant["status"]["phase"]) == (uid, "Running")
        assert tenant["status"]["containerStatuses"][0]["restartCount"] == 0
        assert python_on_node(lab, PREPARE) == "()"


FAULTY = (
    "from dataclasses import replace\n"
    "from divvy.agent.node_runtime import containerd, host\n"
    "from divvy.agent.host_path import HostFailed\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "right = containerd.candidates\n"
    # containerd reads this and shows it in its dump, but cannot start with it.
    "def wrong(*arguments):\n"
    "    files = right(*arguments)[0]\n"
    "    return (replace(files, drop_in='root = \"/proc/none\"\\n' + files.drop_in),)\n"
    "containerd.candidates = wrong\n"
    "containerd.other_differences = lambda *_: ()\n"
    "class Hasty(host.Host):\n"
    "    def restart(self, runtime):\n"
    "        super().restart(runtime, 4.0)\n"
    "try:\n"
    "    prepare_containerd(Hasty())\n"
    "except HostFailed as failure:\n"
    "    print('failed:', failure)\n"
)


def test_completes_a_rollback_when_containerd_cannot_start_while_pods_run(
    restored: RunningLab,
) -> None:
    lab = restored
    off = on_node(lab, "cat", FILE).replace("enable_cdi = true", "enable_cdi = false")
    on_node(lab, "tee", FILE, text=off)
    restart(lab)
    with lab.namespace() as namespace:
        before = run_tenant(lab, namespace, "tenant")["status"]
        output = python_on_node(lab, FAULTY)
        assert output.startswith("failed:")
        assert on_node(lab, "cat", FILE) == off
        assert on_node(lab, "sh", "-c", f"ls {DROP_IN} 2>&1 || true").count("No such file") == 1
        assert "io.containerd" in try_plugins(lab)
        status = lab.get("pod", "tenant", f"-n={namespace}")["status"]
        assert status["containerStatuses"] == before["containerStatuses"]
        # And the node is as good as before: a new pod starts.
        run_tenant(lab, namespace, "next")


@pytest.fixture
def administered(restored: RunningLab) -> RunningLab:
    """Give a node whose file is a link to one that only root reads, with a drop-in beside ours."""
    lab = restored
    off = on_node(lab, "cat", FILE).replace("enable_cdi = true", "enable_cdi = false")
    on_node(lab, "tee", REAL, text=off + "# by the administrator\n")
    on_node(lab, "chmod", "600", REAL)
    python_on_node(lab, f"import os; os.setxattr({REAL!r}, 'user.label', b'etc')")
    on_node(lab, "ln", "-sf", REAL, FILE)
    on_node(lab, "mkdir", "-p", "/etc/containerd/conf.d")
    at = f'plugins."{NEW_TABLE}".containerd.runtimes.runc'
    on_node(
        lab,
        "tee",
        ADMIN,
        text=f'version = 4\n[{at}]\nruntime_type = "io.containerd.runc.v2"\n'
        f"[{at}.options]\nNoNewKeyring = true\n",
    )
    restart(lab)
    return lab


def test_keeps_what_the_administrator_wrote(administered: RunningLab) -> None:
    lab = administered
    real, admin = on_node(lab, "cat", REAL), on_node(lab, "cat", ADMIN)
    dump = on_node(lab, "containerd", "config", "dump")
    assert "NoNewKeyring = true" in dump
    assert python_on_node(lab, PREPARE) == "('enable_cdi is off',)"
    after = on_node(lab, "containerd", "config", "dump")
    assert after == dump.replace("enable_cdi = false", "enable_cdi = true")
    assert on_node(lab, "readlink", FILE).strip() == REAL
    assert on_node(lab, "cat", REAL) == real
    assert on_node(lab, "cat", ADMIN) == admin
    for path in (REAL, DROP_IN):
        assert on_node(lab, "stat", "-c", "%a %u:%g", path).strip() == "600 0:0"
        read = f"import os; print(os.getxattr({path!r}, 'user.label'))"
        assert python_on_node(lab, read) == "b'etc'"


def test_adds_an_import_to_the_linked_file(administered: RunningLab) -> None:
    lab = administered
    imports = 'imports = ["/etc/containerd/conf.d/*.toml"]'
    narrow = f'imports = [\n  "{ADMIN}", # mine\n]'
    on_node(lab, "tee", REAL, text=on_node(lab, "cat", REAL).replace(imports, narrow))
    before, dump = on_node(lab, "cat", REAL), on_node(lab, "containerd", "config", "dump")
    python_on_node(lab, PREPARE)
    ours = f'{narrow[:-9]} "/etc/containerd/conf.d/90-divvy*.toml" # mine\n]'
    assert on_node(lab, "cat", REAL) == before.replace(narrow, ours)
    assert on_node(lab, "stat", "-c", "%a", REAL).strip() == "600"
    assert on_node(lab, "readlink", FILE).strip() == REAL
    after = on_node(lab, "containerd", "config", "dump")
    assert "NoNewKeyring = true" in after
    assert "enable_cdi = true" in after
    assert len(after.splitlines()) == len(dump.splitlines())


REFUSED = (
    "from divvy.agent.node_runtime import host\n"
    "from divvy.agent.node_runtime.containerd import CannotConfigure\n"
    "from divvy.agent.node_runtime.prepare import prepare_containerd\n"
    "try:\n"
    "    prepare_containerd(host.Host())\n"
    "except CannotConfigure as refusal:\n"
    "    print('refused:', refusal)\n"
)


@pytest.fixture
def without_systemd(restored: RunningLab) -> Iterator[RunningLab]:
    on_node(restored, "mv", "/run/systemd/system", "/run/systemd/away")
    yield restored
    on_node(restored, "mv", "/run/systemd/away", "/run/systemd/system")


def test_stops_no_containerd_that_is_no_unit(without_systemd: RunningLab) -> None:
    lab = without_systemd
    off = on_node(lab, "cat", FILE).replace("enable_cdi = true", "enable_cdi = false")
    on_node(lab, "tee", FILE, text=off)
    restart(lab)
    before = on_node(lab, "pgrep", "-o", "-x", "containerd")
    output = python_on_node(lab, REFUSED)
    assert output.startswith("refused:")
    assert "nothing is known to restart" in output
    assert on_node(lab, "pgrep", "-o", "-x", "containerd") == before
    assert on_node(lab, "cat", FILE) == off


def test_finds_and_restarts_the_process_by_its_systemd_unit(restored: RunningLab) -> None:
    lab = restored
    off = on_node(lab, "cat", FILE).replace("enable_cdi = true", "enable_cdi = false")
    on_node(lab, "tee", FILE, text=off)
    before = on_node(lab, "pgrep", "-o", "-x", "containerd")
    assert python_on_node(lab, PREPARE) == "('enable_cdi is off',)"
    assert "enable_cdi = true" in on_node(lab, "containerd", "config", "dump")
    assert on_node(lab, "pgrep", "-o", "-x", "containerd") != before


TURN = """
import os, sys, time
from divvy.kube.client import Client
from divvy.kube.kubeconfig import cluster_config
from divvy.kube.lease import Lease, hold_lease
node, namespace = sys.argv[1:]
lease = Lease("divvy-node-runtime", namespace, 240, 60, retry=0.05)
for _ in range(3):
    with hold_lease(Client(cluster_config(None, None)), lease, node, lambda _: None):
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


def test_changes_the_runtime_of_one_node_at_a_time(lab: RunningLab) -> None:
    with lab.namespace() as namespace:
        nodes = [start_turns(lab, node, namespace) for node in ("one", "two", "three")]
        inside = []
        for node in nodes:
            output, _ = node.communicate(timeout=60)
            assert node.returncode == 0
            inside += [tuple(map(float, line.split())) for line in output.splitlines()]
        assert len(inside) == 9
        inside.sort()
        assert all(out <= into for (_, out), (into, _) in pairwise(inside))
