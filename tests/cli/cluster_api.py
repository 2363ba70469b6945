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
    """An API server: lists by path; what it does not have is not found."""

    def __init__(self) -> None:
        allocatable = {GPU: "4", "cpu": "8", "memory": "32Gi", "pods": "20"}
        meta = {"name": "n1", "labels": {"pool": "training"}}
        self.forbidden: set[str] = set()
        self.lists: dict[str, list[Any]] = {
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
        if request.url.path in self.forbidden:
            return httpx2.Response(403, json={"message": "forbidden"})
        items = self.lists.get(request.url.path)
        if items is None:
            return httpx2.Response(404, json={"message": "not found"})
        return httpx2.Response(200, json={"items": items, "metadata": {}})

    def serve(self, monkeypatch: pytest.MonkeyPatch, command: ModuleType) -> None:
        """Have a command read from here."""

        @contextmanager
        def reading(*_: object) -> Iterator[ClusterReader]:
            transport = httpx2.MockTransport(self.answer)
            with Client(ClusterConfig("http://api"), transport=transport) as client:
                yield ClusterReader(client)

        monkeypatch.setattr(command, "reading", reading)
