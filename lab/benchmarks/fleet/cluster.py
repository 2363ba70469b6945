"""A cluster of node objects: agents' pods that become ready, and what the API server counts."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.benchmarks.fleet.links import NAMESPACE
from tests.render.objects.claims.api_server import ApiServer

WRITERS = 8
IMAGES = 50
"""As many as a kubelet lists: they are most of a node object's bytes."""
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TOKEN = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/divvy-agent/token"


def make_nodes(server: ApiServer, count: int) -> list[str]:
    """Make nodes as kubelets register them; return their names."""
    quantities = {"pods": "110", "cpu": "64", "memory": "512Gi", "ephemeral-storage": "900Gi"}
    times = {"lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", **times}
    images = [
        {
            "names": [f"registry.example/team/image-{n}@sha256:{n:064x}"],
            "sizeBytes": 10**9 + n,
        }
        for n in range(IMAGES)
    ]
    info = {"containerRuntimeVersion": "containerd://2.2.0", "kubeletVersion": "v1.36.3"}

    def make(number: int) -> str:
        name = f"node-{number:05}"
        labels = {"kubernetes.io/hostname": name, "fleet": "yes"}
        node: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
        }
        answer = server.send("POST", "/api/v1/nodes", node)
        assert answer.status == 201, answer.body
        body = answer.body
        body["spec"].pop("taints", None)
        body = server.send("PUT", f"/api/v1/nodes/{name}", body).body
        body["status"] = {
            "allocatable": quantities,
            "capacity": quantities,
            "conditions": [ready],
            "images": images,
            "nodeInfo": body["status"]["nodeInfo"] | info,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        }
        assert server.send("PUT", f"/api/v1/nodes/{name}/status", body).status == 200
        return name

    with ThreadPoolExecutor(WRITERS) as writers:
        return list(writers.map(make, range(count)))


@dataclass(frozen=True)
class AgentPod:
    """An agent's pod on a node."""

    node: str
    name: str
    uid: str


@contextlib.contextmanager
def pods_becoming_ready(server: ApiServer, nodes: int) -> Iterator[dict[str, AgentPod]]:
    """Let each agent's pod that is bound to a node be ready; yield them, by node, as they come."""
    agent_pods: dict[str, AgentPod] = {}
    over = threading.Event()

    def make_ready(pod: dict[str, Any]) -> None:
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Running", "conditions": conditions, "podIP": "127.0.0.1"}
        path = f"{_PODS}/{pod['metadata']['name']}/status"
        server.send("PUT", path, {**pod, "apiVersion": "v1", "kind": "Pod", "status": status})

    def follow() -> None:
        with ThreadPoolExecutor(WRITERS) as writers:
            # Not beyond the last node: its agents are about to begin, and that is measured.
            while len(agent_pods) < nodes and not over.is_set():
                began = time.monotonic()
                listed = server.send("GET", _PODS).body.get("items", ())
                for pod in listed:
                    meta, node = pod["metadata"], pod["spec"].get("nodeName")
                    if node and node not in agent_pods:
                        agent_pods[node] = AgentPod(node, meta["name"], meta["uid"])
                        writers.submit(make_ready, pod)
                # A list of thousands of pods keeps the API server from making them.
                over.wait(max(1.0, 3 * (time.monotonic() - began)))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield agent_pods
    finally:
        over.set()
        thread.join()


def write_kubeconfigs(server: ApiServer, pods: dict[str, AgentPod], folder: Path) -> None:
    """Write the kubeconfig of each agent: the token of its own pod."""
    whole = yaml.safe_load(server.cluster.kubeconfig.read_text())

    def write(pod: AgentPod) -> None:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        token_request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": bound, "expirationSeconds": 7200},
        }
        answer = server.send("POST", _TOKEN, token_request)
        assert answer.status == 201, answer.body
        user = [{"name": "administrator", "user": {"token": answer.body["status"]["token"]}}]
        (folder / pod.node).write_text(json.dumps({**whole, "users": user}))

    with ThreadPoolExecutor(WRITERS) as writers:
        list(writers.map(write, pods.values()))


@dataclass(frozen=True)
class Counts:
    """What an API server has counted since its start."""

    requests: float
    watch_bytes: float
    processor_seconds: float
    resident_bytes: float

    @classmethod
    def of(cls, server: ApiServer) -> Counts:
        """Read them."""
        text = server.cluster.kubectl("get", "--raw=/metrics")
        return cls(
            _sum(text, "apiserver_request_total"),
            _sum(text, "apiserver_watch_events_sizes_sum"),
            _sum(text, "process_cpu_seconds_total"),
            _sum(text, "process_resident_memory_bytes"),
        )


def _sum(text: str, name: str) -> float:
    lines = re.findall(rf"^{name}(?:\{{[^\n]*\}})? (\S+)$", text, re.MULTILINE)
    return sum(map(float, lines))


class ServerProcess:
    """The API server's process, which the benchmark takes away for a while."""

    def __init__(self, server: ApiServer) -> None:
        port = server.cluster.server.rpartition(":")[2]
        self._pid, self._command = _process_with(f"--secure-port={port}")
        self._own: subprocess.Popen[bytes] | None = None

    def end(self) -> None:
        """End it at once."""
        if self._own is not None:
            self._own.kill()
            self._own.wait()
            self._own = None
            return
        os.kill(self._pid, signal.SIGKILL)

    def start(self) -> None:
        """Start it as it was."""
        bound = ["setpriv", "--pdeathsig", "KILL", *self._command]
        self._own = subprocess.Popen(bound, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _process_with(argument: str) -> tuple[int, list[str]]:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")[:-1]
            if argument in words and words[0].endswith("kube-apiserver"):
                return int(process.name), words
    raise AssertionError(f"no API server has {argument}")


def until_ready(server: ApiServer) -> float:
    """Wait for the API server; return the seconds it took."""
    began = time.monotonic()
    while "ok" not in server.cluster.try_kubectl("get", "--raw=/readyz").stdout:
        assert time.monotonic() - began < 120, "the API server does not come back"
        time.sleep(0.1)
    return time.monotonic() - began
