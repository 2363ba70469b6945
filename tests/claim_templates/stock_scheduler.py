"""The stock scheduler at a real API server, and nodes without a kubelet."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from lab.cluster.tools import KUBERNETES
from tests.render.objects.claims.api_server import ApiServer


class StockScheduler:
    """Its process."""

    def __init__(self, config: Path, log: Path) -> None:
        program = str(KUBERNETES.bin / "kube-scheduler")
        self._command = ["setpriv", "--pdeathsig", "KILL", program, f"--config={config}"]
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("a") as log:
            command = [*self._command, "--secure-port=0"]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        """Return its process ID."""
        return self._process.pid

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        """End it and start it again: it forgets what it thought of devices."""
        self.end()
        self._start()


@contextlib.contextmanager
def running_scheduler(server: ApiServer, folder: Path) -> Iterator[StockScheduler]:
    """Run it; a pod that waits is looked at again after a second at most when something changes."""
    config = folder / "scheduler.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "leaderElection": {"leaderElect": False},
                "clientConnection": {
                    "kubeconfig": str(server.cluster.kubeconfig),
                    "qps": 300,
                    "burst": 600,
                },
                "podMaxBackoffSeconds": 1,
            }
        )
    )
    scheduler = StockScheduler(config, folder / "scheduler.log")
    try:
        yield scheduler
    finally:
        scheduler.end()


def make_node(server: ApiServer, name: str, resources: Mapping[str, str] = {}) -> None:
    """Make a node that pods can be bound to, with extended resources."""
    quantities = {"pods": "100", "cpu": "100", "memory": "100Gi", **resources}
    server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    ready = {"type": "Ready", "status": "True"}
    status = {"allocatable": quantities, "capacity": quantities, "conditions": [ready]}
    body = server.send("GET", f"/api/v1/nodes/{name}").body | {"status": status}
    body["spec"].pop("taints", None)
    assert server.send("PUT", f"/api/v1/nodes/{name}/status", body).status == 200
    body = server.send("GET", f"/api/v1/nodes/{name}").body
    body["spec"].pop("taints", None)
    assert server.send("PUT", f"/api/v1/nodes/{name}", body).status == 200
