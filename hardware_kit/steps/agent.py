"""The agent itself, between this machine's driver and a made-up kubelet and API server."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from divvy.model import canonical_json, gpu_resource
from divvy.model.contract import CDI_KIND
from hardware_kit.notes import Notes, not_made
from hardware_kit.settings import FOLDERS, NODE, OWNER, SOCKETS, KitSettings
from tests.fakes.agent import AgentNode
from tests.fakes.api import fake_api
from tests.fakes.dra_kubelet import fake_dra_kubelet
from tests.fakes.kubelet import fake_kubelet

_REPLICAS = 4
_SHARED = "nvidia.com/gpu.shared"
_RECOVER = "2s"
_SECONDS = 20.0


def run(settings: KitSettings, notes: Notes) -> None:
    """Register, list, allocate, change the profile, and lose a GPU's health for a while."""
    if not _has_loopback():
        not_made(
            "the loopback interface is down, and the agent asks an API server: ip link set lo up"
        )
    asyncio.run(_scene(settings, notes))


def _has_loopback() -> bool:
    with socket.socket() as listening, socket.socket() as asking:
        try:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            asking.connect(listening.getsockname())
        except OSError:
            return False
        return True


def _configuration(profile: dict[str, Any]) -> str:
    pools = {"all": {"profile": "p"}}
    plugin = {"image": {"registry": "localhost:5000"}}
    # No XID is ignored: a program that breaks then takes its GPU out for a moment.
    health = {"ignoreXids": [], "recoverAfter": _RECOVER}
    profiles = {"p": profile}
    return canonical_json(
        {"profiles": profiles, "pools": pools, "plugin": plugin, "health": health}
    )


@asynccontextmanager
async def _node(settings: KitSettings) -> AsyncIterator[AgentNode]:
    gpus = len(settings.machine.gpus)
    with tempfile.TemporaryDirectory(prefix=FOLDERS, dir=SOCKETS) as short:
        (Path(short) / OWNER).write_text(str(os.getpid()))
        # A way to the scratch folder, and not in its place: programs may not run everywhere.
        way = Path(short) / "s"
        way.symlink_to(settings.scratch)
        async with _at_work(settings, way, gpus) as node:
            yield node


@asynccontextmanager
async def _at_work(settings: KitSettings, folder: Path, gpus: int) -> AsyncIterator[AgentNode]:
    async with (
        fake_kubelet(folder) as kubelet,
        fake_dra_kubelet(folder) as claims,
        fake_api(NODE) as api,
    ):
        node = AgentNode(folder, kubelet, claims, api, gpus, driver_root=settings.root)
        node.environment = settings.environment(folder)
        api.configure(_configuration({}))
        await node.start()
        try:
            yield node
        finally:
            await node.kill()


async def _scene(settings: KitSettings, notes: Notes) -> None:
    whole = gpu_resource()
    began = time.monotonic()
    async with _node(settings) as node:
        # GPUs whose MIG the administrator has set up are offered otherwise, and not changed here.
        expected = sum(gpu.mig != "Enabled" for gpu in settings.machine.gpus)
        listed = await _offered(node, whole, expected)
        notes.holds("whole GPUs that it lists", listed, expected, node.kubelet.allocatable(whole))
        notes.tell("from its start to the list in seconds", time.monotonic() - began)
        ready = await _until(node, lambda: node.status.get("state") == "Ready")
        notes.holds("state of the node", ready, "Ready", _words(node.status))
        notes.tell("from its start to Ready in seconds", time.monotonic() - began)
        if not listed:
            print(node.log)
            return
        await _allocate(node, notes, whole, settings.scratch)
        await _change(node, notes, expected)
        await _break(settings, node, notes)
        labels = node.api.node["metadata"]["labels"]
        notes.tell("labels that it has written", len(labels))
        notes.equal("it still runs", True, node.agent is not None and node.agent.returncode is None)


async def _allocate(node: AgentNode, notes: Notes, resource: str, cdi: Path) -> None:
    began = time.monotonic()
    answer = await node.kubelet.admit("team/pod", resource)
    notes.tell("Allocate with its admission in milliseconds", (time.monotonic() - began) * 1000)
    (held,) = node.kubelet.held("team/pod")[resource]
    names = [cdi_device.name for cdi_device in answer.cdi_devices]
    notes.equal("what Allocate answers", [f"{CDI_KIND}={held}"], names)
    specified = [path.name for path in (cdi / "cdi").glob("*.json")]
    notes.tell("CDI specifications that it has written", sorted(specified))
    node.kubelet.end("team/pod")


async def _change(node: AgentNode, notes: Notes, expected: int) -> None:
    """Share the GPUs by time: the kubelet's list follows."""
    began = time.monotonic()
    node.api.configure(_configuration({"timeSlicing": {"replicas": _REPLICAS}}))
    wanted = expected * _REPLICAS
    followed = await _offered(node, _SHARED, wanted)
    allocatable = node.kubelet.allocatable(_SHARED)
    notes.holds("replicas after a change of the profile", followed, wanted, allocatable)
    notes.tell("from the change to the list in seconds", time.monotonic() - began)


async def _break(settings: KitSettings, node: AgentNode, notes: Notes) -> None:
    """Run a program that breaks: all replicas of its GPU go, and come back."""
    if not settings.gpu:
        notes.tell("a GPU that loses its health", "not made: no GPU is idle")
        return
    before = node.kubelet.allocatable(_SHARED)
    environment = {**settings.machine.environment, "CUDA_VISIBLE_DEVICES": settings.gpu}
    await asyncio.to_thread(
        lambda: subprocess.run(
            [str(settings.workloads / "bad-access")], env=environment, timeout=60, check=False
        )
    )
    gone = await _offered(node, _SHARED, before - _REPLICAS)
    allocatable = node.kubelet.allocatable(_SHARED)
    notes.holds("replicas after an XID that counts", gone, before - _REPLICAS, allocatable)
    back = await _offered(node, _SHARED, before)
    allocatable = node.kubelet.allocatable(_SHARED)
    notes.holds(f"replicas {_RECOVER} of calm later", back, before, allocatable)


def _words(status: dict[str, Any]) -> str:
    return f"{status.get('state', 'not told')} {status.get('reason', '')}".strip()


async def _until(node: AgentNode, met: Callable[[], bool]) -> bool:
    try:
        await node.until(met, _SECONDS)
    except AssertionError:
        return False
    return True


async def _offered(node: AgentNode, resource: str, count: int) -> bool:
    try:
        await node.offered(resource, count, _SECONDS)
    except AssertionError:
        return False
    return True
