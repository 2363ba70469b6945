"""Register, list, allocate, change the profile, and lose a GPU's health for a while."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.bare.findings import Findings
from conformance.bare.host import BareHost
from conformance.bare.injection import NODE, agent_environment
from conformance.bare.kit import AGENT_SCENE, Kit
from conformance.bare.run_state import STATE
from divvy.model import canonical_json, gpu_resource
from divvy.model.api_names import CDI_KIND
from lab.fakes.agent import AgentNode
from lab.fakes.api import fake_api
from lab.fakes.dra_kubelet import fake_dra_kubelet
from lab.fakes.kubelet import AGENT_POD, fake_kubelet

_REPLICAS = 4
_SHARED = "nvidia.com/gpu.shared"
_RECOVER = "2s"
_SECONDS = 20.0


def pytest_configure(config: pytest.Config) -> None:
    """Give the scene to the check of the agent: this module is a plugin of the kit's suite."""
    config.stash[AGENT_SCENE] = _play


async def _play(
    host: BareHost, kit: Kit, scratch: Path, gpu: str | None, findings: Findings
) -> None:
    await Scene(host, kit, scratch, gpu, findings).play()


@dataclass
class Scene:
    """The agent at work on this host; ``gpu`` is one on which a program may break, or None."""

    host: BareHost
    kit: Kit
    scratch: Path
    gpu: str | None
    findings: Findings

    async def play(self) -> None:
        """Go through all of it."""
        findings, resource = self.findings, gpu_resource()
        began = time.monotonic()
        gpus = self.host.gpus
        async with self._node(len(gpus)) as node:
            # GPUs whose MIG the administrator has set up are offered otherwise, and left alone.
            expected = sum(gpu.mig != "Enabled" for gpu in gpus)
            listed = await _offered(node, resource, expected)
            seen = node.kubelet.allocatable(resource)
            findings.holds("whole GPUs that it lists", listed, expected, seen)
            findings.tell("from its start to the list in seconds", time.monotonic() - began)
            ready = await _until(node, lambda: node.status.get("state") == "Ready")
            words = f"{node.status.get('state', 'not told')} {node.status.get('reason', '')}"
            findings.holds("state of the node", ready, "Ready", words)
            findings.tell("from its start to Ready in seconds", time.monotonic() - began)
            if not listed:
                findings.tell("its log", node.log)
                return
            await self._allocate(node, resource)
            await self._change(node, expected)
            await self._break(node)
            findings.tell("labels that it has written", len(node.api.node["metadata"]["labels"]))
            runs = node.agent is not None and node.agent.returncode is None
            findings.equal("it still runs", True, runs)

    @asynccontextmanager
    async def _node(self, gpus: int) -> AsyncIterator[AgentNode]:
        # A way to the scratch folder, short enough for sockets: programs may not run in its place.
        way = STATE / "s"
        way.unlink(missing_ok=True)
        way.symlink_to(self.scratch)
        try:
            async with (
                fake_kubelet(way) as kubelet,
                fake_dra_kubelet(way) as claims,
                fake_api(NODE) as api,
            ):
                root = Path(self.host.root)
                node = AgentNode(way, kubelet, claims, api, gpus, driver_root=root)
                # The kubelet lists this pod, and no agent knows who holds what before it does.
                own_pod = {"POD_NAME": AGENT_POD.partition("/")[2]}
                node.environment = agent_environment(self.kit, root, way) | own_pod
                api.configure(_configuration({}))
                await node.start()
                try:
                    yield node
                finally:
                    await node.kill()
        finally:
            way.unlink(missing_ok=True)
            shutil.rmtree(self.scratch, ignore_errors=True)

    async def _allocate(self, node: AgentNode, resource: str) -> None:
        began = time.monotonic()
        answer = await node.kubelet.admit("team/pod", resource)
        milliseconds = (time.monotonic() - began) * 1000
        self.findings.tell("Allocate with its admission in milliseconds", milliseconds)
        (held,) = node.kubelet.held("team/pod")[resource]
        names = [cdi_device.name for cdi_device in answer.cdi_devices]
        self.findings.equal("what Allocate answers", [f"{CDI_KIND}={held}"], names)
        specified = sorted(path.name for path in (self.scratch / "cdi").glob("*.json"))
        self.findings.tell("CDI specifications that it has written", specified)
        node.kubelet.end("team/pod")

    async def _change(self, node: AgentNode, expected: int) -> None:
        """Share the GPUs by time: the kubelet's list follows."""
        began = time.monotonic()
        node.api.configure(_configuration({"timeSlicing": {"replicas": _REPLICAS}}))
        await self._follows(node, "replicas after a change of the profile", expected * _REPLICAS)
        self.findings.tell("from the change to the list in seconds", time.monotonic() - began)

    async def _break(self, node: AgentNode) -> None:
        """Run a program that breaks: all replicas of its GPU go, and come back."""
        if self.gpu is None:
            self.findings.tell("a GPU that loses its health", "not made: needs --exclusive, idle")
            return
        before = node.kubelet.allocatable(_SHARED)
        started = self.host.start(self.kit.workloads / "bad-access", device=self.gpu)
        await asyncio.to_thread(self.host.end, started)
        await self._follows(node, "replicas after an XID that counts", before - _REPLICAS)
        await self._follows(node, f"replicas {_RECOVER} of calm later", before)

    async def _follows(self, node: AgentNode, what: str, wanted: int) -> None:
        followed = await _offered(node, _SHARED, wanted)
        self.findings.holds(what, followed, wanted, node.kubelet.allocatable(_SHARED))


def _configuration(profile: dict[str, Any]) -> str:
    pools = {"all": {"profile": "p"}}
    plugin = {"image": {"registry": "localhost:5000"}}
    # No XID is ignored: a program that breaks then takes its GPU out for a moment.
    health = {"ignoreXids": [], "recoverAfter": _RECOVER}
    profiles = {"p": profile}
    return canonical_json(
        {"profiles": profiles, "pools": pools, "plugin": plugin, "health": health}
    )


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
