"""What tests do with a lab that is up."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lab.cluster import processes, registry
from lab.cluster.description import Lab
from lab.cluster.machine import Machine
from lab.cluster.tools import KUBERNETES
from tests.api_reader import ApiReader


@dataclass(frozen=True)
class RunningLab:
    """A lab that is up, and the kubeconfig of its administrator."""

    description: Lab
    kubeconfig: Path

    @property
    def busybox(self) -> str:
        """Return the image, by digest, of a small shell that every node can pull."""
        return registry.reference(self.description, "busybox")

    def machine(self, name: str) -> Machine:
        """Return a node as the lab sees it."""
        return Machine(self.description, self.description.node(name))

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 180) -> str:
        """Run kubectl as administrator; raise with its words if it fails."""
        done = self.try_kubectl(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr.strip()}"
        return done.stdout

    def try_kubectl(
        self, *arguments: str, stdin: str | None = None, timeout: float = 180
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as administrator and return how it went."""
        command = [str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=timeout, check=False
        )

    @cached_property
    def api(self) -> ApiReader:
        """Return a connection to its API server, as administrator."""
        return ApiReader(self.kubeconfig)

    def refused_requests(self) -> int:
        """Return how many requests the API server has refused for want of rights."""
        metrics = self.kubectl("get", "--raw=/metrics")
        refused = re.findall(r'^apiserver_request_total{code="403".* (\d+)$', metrics, re.MULTILINE)
        return sum(map(int, refused))

    def get(self, *arguments: str) -> Any:
        """Return what kubectl get answers."""
        return self.api.get(*arguments)

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(whole))

    @contextlib.contextmanager
    def namespace(self, labels: dict[str, str] | None = None) -> Iterator[str]:
        """Give a namespace of its own; its removal begins afterwards, and takes some seconds."""
        name = f"test-{secrets.token_hex(3)}"
        metadata = {"name": name, "labels": labels or {}}
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        try:
            # Pods are refused until the controllers have made the namespace's account.
            self.until(lambda: self.api.try_get("serviceaccount", "default", f"-n={name}"))
            yield name
        finally:
            self.kubectl("delete", "namespace", name, "--wait=false")

    def pod(self, name: str, script: str, node: str | None = None, **spec: Any) -> dict[str, Any]:
        """Return a pod that runs a shell script."""
        container = {
            "name": "main",
            "image": self.busybox,
            "command": ["sh", "-c", script],
            **spec.pop("container", {}),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
                "restartPolicy": "Never",
                **({"nodeName": node} if node else {}),
                **spec,
            },
        }

    @contextlib.contextmanager
    def silent_api(self, seconds: float = 0) -> Iterator[None]:
        """Stop the API server: connections to it stay open and nothing answers.

        It stays silent for `seconds` at least. More than 40 s is longer than a node's lease: nodes
        are suspected afterwards.
        """
        process = processes.find("kube-apiserver")
        assert process is not None
        end = time.monotonic() + seconds
        os.kill(process, signal.SIGSTOP)
        try:
            yield
            time.sleep(max(end - time.monotonic(), 0))
        finally:
            os.kill(process, signal.SIGCONT)

    def until(self, condition: Callable[[], object], patience: float = 60.0) -> None:
        """Wait until a condition holds; fail when it does not in time."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, f"not so after {patience:.0f} s"
            time.sleep(0.1)
