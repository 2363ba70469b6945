"""An API server of a test for commands that read a cluster, and the stack that is in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest

from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.live.cluster_reader import ClusterReader

GPU = "nvidia.com/gpu"
READY = {"type": "Ready", "status": "True"}
STACK = """\
config:
  divvy:cluster:
    profiles: {whole: {}, slices: {timeSlicing: {replicas: 4}}}
    pools:
      training:
        select: {pool: training}
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 2}
        profile: whole
      unknown: {select: {pool: unknown}, profile: slices}
"""


def write_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a project of one stack, ``prod``, and work in it."""
    (folder / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (folder / "Pulumi.prod.yaml").write_text(STACK)
    monkeypatch.chdir(folder)


class ClusterApi:
    """An API server: what it answers by path; what it does not have is not found.

    An answer is the items of a list, a status, or what returns or raises the answer.
    """

    config = ClusterConfig("http://api")

    def __init__(self) -> None:
        allocatable = {GPU: "4", "cpu": "8", "memory": "32Gi", "pods": "20"}
        meta = {"name": "n1", "labels": {"pool": "training"}}
        self.forbidden: set[str] = set()
        self.asked: list[str] = []
        self.lists: dict[str, Any] = {
            "/api/v1/nodes": [
                {
                    "metadata": meta,
                    "spec": {},
                    "status": {"allocatable": allocatable, "conditions": [READY]},
                }
            ],
            "/api/v1/pods": [],
            "/api/v1/namespaces": [{"metadata": {"name": "team"}}],
        }

    def pod(self, name: str, gpus: int, node: str | None) -> None:
        resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}}
        spec = {"containers": [{"name": "main", "resources": resources}], "nodeName": node}
        meta = {
            "name": name,
            "namespace": "team",
            "creationTimestamp": f"2026-01-0{gpus}T00:00:00Z",
        }
        self.lists["/api/v1/pods"].append({"metadata": meta, "spec": spec, "status": {}})

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(str(request.url))
        if request.url.path in self.forbidden:
            return httpx2.Response(403, json={"message": "forbidden"})
        items = self.lists.get(request.url.path, 404)
        if isinstance(items, int):
            return httpx2.Response(items, json={"message": "no"})
        if callable(items):
            answer: httpx2.Response = items()
            return answer
        begin = int(request.url.params.get("continue") or 0)
        end = begin + int(request.url.params.get("limit") or len(items))
        more = {"continue": str(end)} if end < len(items) else {}
        return httpx2.Response(200, json={"metadata": more, "items": items[begin:end]})

    def serve(self, monkeypatch: pytest.MonkeyPatch, command: ModuleType) -> None:
        """Have a command read from here."""

        @contextmanager
        def reading(*_: object) -> Iterator[ClusterReader]:
            transport = httpx2.MockTransport(self.answer)
            with Client(self.config, transport=transport) as client:
                yield ClusterReader(client)

        monkeypatch.setattr(command, "reading", reading)
