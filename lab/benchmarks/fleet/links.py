"""The API links of many agents in one process: what each node's agent asks of the API server.

Started by the benchmark with a folder that has a kubeconfig for each node. It writes a line for
each node and event: "touch TIME" when both watches have begun, "follows GENERATION TIME" when the
node's object has the status of that configuration, allocatable included.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import sys
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from divvy.agent.api_server.client import ApiServer
from divvy.agent.api_server.node_status import NodeStatusWriter
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.status import GpuStatus, NodeStatus
from divvy.agent.plugin.inventory import Resource
from divvy.model import generation, hardware_model, parse_canonical
from divvy.model.api_names import CONFIG_MAP, STATUS_ANNOTATION, State
from divvy.plan.predict.prediction import NodePlan, predict_node
from tests.agent.devices import gpu, replicas, whole

NAMESPACE = "divvy-system"
GPUS = 8


@cache
def _predicted(config: str) -> NodePlan:
    """Return what each node advertises; on a real one its own agent finds that, once a change."""
    cluster = parse_canonical(config)
    pool = cluster.pools["fleet"]
    assert pool.hardware is not None
    return predict_node(cluster, pool.profile, hardware_model(pool.hardware), GPUS)


class Link:
    """One node's: what `Agent` does with its API, without a driver and a kubelet."""

    def __init__(self, node: str, kubeconfig: Path, kubelet: httpx2.AsyncClient) -> None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
        self._name = node
        self._api = ApiServer(node, NAMESPACE, CONFIG_MAP)
        self._writer = NodeStatusWriter(self._api)
        self._kubelet = kubelet
        self._node = NodeView("", {}, {})
        self._config: str | None = None
        self._touched = False
        self._followed = ""
        self._advertised: dict[str, str] = {}
        self._advertising: asyncio.Task[None] | None = None
        self._gpus = tuple(replace(gpu(index), uuid=f"GPU-{node}-{index}") for index in range(GPUS))

    async def run(self) -> None:
        """Watch, decide, write, forever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._api.watch_node(self._on_node))
            tasks.create_task(self._api.watch_config(self._on_config))
            tasks.create_task(self._writer.write())
            tasks.create_task(self._writer.record())

    def _on_node(self, node: NodeView) -> None:
        if not self._node.uid and (status := node.annotations.get(STATUS_ANNOTATION)):
            # Its kubelet knows what an agent before this one advertised.
            self._followed = json.loads(status)["generation"]
        self._node = node
        self._reconcile()

    def _on_config(self, text: str | None) -> None:
        self._config = text
        self._reconcile()

    def _reconcile(self) -> None:
        if not self._touched and self._api.in_touch:
            self._touched = True
            _say("touch", f"{time.monotonic():.3f}")
        if self._config is None or not self._node.uid:
            return
        predicted = _predicted(self._config)
        resources = [_resource(name, count) for name, count in predicted.per_node.items()]
        status = NodeStatus(
            generation=generation(self._config),
            pool="fleet",
            profile=predicted.profile,
            source="pool",
            problem="",
            driver="550.163.01",
            simulated=True,
            gpus=tuple(
                GpuStatus(gpu.index, gpu.uuid, State.READY, "", None, tuple(predicted.per_node))
                for gpu in self._gpus
            ),
            resources=dict(predicted.per_node),
        )
        snapshot = Snapshot("550.163.01", (12, 4), self._gpus)
        self._writer.update(self._node, status, snapshot, resources, None)
        if self._node.annotations.get(STATUS_ANNOTATION) == status.annotation():
            self._advertise(status)

    def _advertise(self, status: NodeStatus) -> None:
        """Let the node's kubelet tell the devices, as it does when a list arrives."""
        if status.generation == self._followed:
            return
        self._followed = status.generation
        # A resource that is gone stays there with 0 devices.
        now = {name: str(count) for name, count in status.resources.items()}
        self._advertised = dict.fromkeys(self._advertised, "0") | now
        if self._advertising is not None:
            self._advertising.cancel()  # what it has not told yet is of yesterday
        of, counts = status.generation, dict(self._advertised)
        self._advertising = asyncio.create_task(self._patch_status(of, counts))

    async def _patch_status(self, of: str, counts: dict[str, str]) -> None:
        body = {"status": {"allocatable": counts, "capacity": counts}}
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"/api/v1/nodes/{self._name}/status"
        while True:
            with contextlib.suppress(httpx2.HTTPError):
                answer = await self._kubelet.patch(path, content=json.dumps(body), headers=headers)
                answer.raise_for_status()
                break
            await asyncio.sleep(1)
        _say("follows", of, f"{time.monotonic():.3f}")


def _resource(name: str, count: int) -> Resource:
    per_gpu = count // GPUS
    return whole(GPUS) if per_gpu == 1 else replicas(GPUS, per_gpu, name)


def _say(*words: str) -> None:
    print(*words, flush=True)


async def _run(folder: Path, server: str, token: str, nodes: list[str]) -> None:
    limits: Any = httpx2.Limits(max_connections=16)
    async with httpx2.AsyncClient(
        base_url=server,
        verify=False,
        headers={"Authorization": f"Bearer {token}"},
        limits=limits,
        timeout=120,
    ) as kubelet:
        links = [Link(node, folder / node, kubelet) for node in nodes]
        _say("made")
        await asyncio.to_thread(sys.stdin.readline)  # until all processes can begin at once
        await asyncio.gather(*(link.run() for link in links))


def main() -> None:
    folder, server, token = sys.argv[1:4]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    logging.disable(logging.WARNING)  # what each link says of an outage, thousands say alike
    nodes = sys.argv[4:] or Path(folder, "nodes").read_text().split()
    asyncio.run(_run(Path(folder), server, token, nodes))


if __name__ == "__main__":
    main()
