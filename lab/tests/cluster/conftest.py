"""A second, smaller lab that tests may break, beside whatever lab is in use."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.cluster.paths import cache

_DESCRIPTION = """\
config:
  divvy:lab:
    network: 10.126.0.0/16
    ports: {apiServer: 16443, etcd: 12379, registry: 15000}
    nodeStatusUpdateFrequency: 1s
    nodes:
      - name: gpu-1
        labels: {node.kubernetes.io/instance-type: gpu-t4}
        model: T4
        count: 2
        containerd: {configVersion: 2, cdi: false}
      - name: cpu-1
"""


@dataclass(frozen=True)
class SmallLab:
    """The divvy command, for a lab of another name than the one in use."""

    description: Path
    environment: dict[str, str]

    def divvy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run divvy lab … and return how it went."""
        return subprocess.run(
            self.command(*arguments),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of divvy lab …."""
        stack = ["--file", str(self.description)] if arguments[0] in ("up", "upgrade") else []
        divvy = str(Path(sys.executable).with_name("divvy"))
        return [divvy, "lab", *arguments[:1], *stack, *arguments[1:]]

    def up(self) -> None:
        """Bring the lab up and fail with its words if it does not come."""
        done = self.divvy("up")
        assert done.returncode == 0, done.stdout + done.stderr

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; raise with its words if it fails."""
        kubeconfig = self.divvy("kubeconfig").stdout.strip()
        kubectl = str(Path(sys.executable).with_name("kubectl"))
        done = subprocess.run(
            [kubectl, f"--kubeconfig={kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def pod_on(self, node: str, name: str) -> None:
        """Run a pod that stays on a node and wait until it is ready."""
        manifest = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: 10.126.0.1:15000/divvy/busybox:lab
    command: [sleep, infinity]
"""
        self.kubectl("apply", "--filename=-", stdin=manifest)
        self.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


@pytest.fixture
def small_lab(tmp_path: Path) -> Iterator[SmallLab]:
    """Give a lab of two nodes that is down before and after."""
    description = tmp_path / "Pulumi.small.yaml"
    description.write_text(_DESCRIPTION)
    small = SmallLab(description, {**os.environ, "DIVVY_LAB": "test"})
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "small-lab.lock").open("w") as turn:
        # Another test session on this machine may be at it.
        fcntl.flock(turn, fcntl.LOCK_EX)
        assert small.divvy("down").returncode == 0
        yield small
        assert small.divvy("down").returncode == 0
