"""What claims are offered while the agent does not know its node, or has no rights to slices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from divvy.agent.claims import retirement, service
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.server import SOCKET
from divvy.agent.claims.service import Claims
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.owner import KubeletFence, hand_over
from divvy.agent.kubelet.api import drahealth_pb2, drahealth_pb2_grpc
from divvy.agent.settings import settings_from
from divvy.kube.errors import FORBIDDEN, ApiError
from tests.agent.claim_values import BY_SIZE, claim_record, offered_gpu
from tests.agent.devices import gpu, snapshot
from tests.fakes.scene import play

LOOK = 0.02
OFFERED = offered_gpu(0, BY_SIZE)
SEEN = snapshot(gpu(0))


class Unallocated:
    """An API server that has no claims; it keeps slices out of reach, or ``refuses`` everything."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses

    async def claims(self) -> AsyncIterator[dict[str, Any]]:
        if self.refuses:
            raise ApiError(FORBIDDEN, "RBAC: clusterrole not found")
        for claim in ():
            yield claim

    async def slices(self) -> None:
        raise ApiError(FORBIDDEN, "RBAC: clusterrole not found")


@asynccontextmanager
async def serving(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, refuses: bool
) -> AsyncIterator[Claims]:
    """Serve claims that are offered a GPU, as an agent that has just started."""
    monkeypatch.setattr(retirement, "_LOOK_SECONDS", LOOK)
    monkeypatch.setattr(retirement, "_SETTLED_SECONDS", 3 * LOOK)
    monkeypatch.setattr(service, "ClaimsApi", lambda *_: Unallocated(refuses=refuses))
    folders = {
        f"DIVVY_{name}_FOLDER": str(folder) for name in ("STATE", "CDI", "CLAIMS", "REGISTRY")
    }
    settings = settings_from({"NODE_NAME": "node", "NAMESPACE": "divvy", **folders})
    ClaimsFile(folder, folder, lambda: None).save(claim_record(OFFERED))
    driver: Any = SimpleNamespace(snapshot=SEEN, problem="")
    injection: Any = SimpleNamespace(by_cdi=True, described=(), described_as=lambda _: None)
    health: Any = SimpleNamespace(health=Health())
    pod_resources: Any = None
    claims = Claims(settings, driver, health, injection, pod_resources, lambda: None)
    loops = [asyncio.create_task(loop()) for loop in (claims.publish, claims.retire)]
    try:
        yield claims
    finally:
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)


async def stays(claims: Claims, node_uid: str) -> None:
    """Fail if the GPU, which is to be the device plugin's, leaves what is offered."""
    desired = DesiredState(config="{}", has_claims=True)
    for _ in range(30):
        owner = hand_over(OFFERED.uuid, None, KubeletFence({}, {}), claims.view)
        claims.consider(desired, SEEN, {OFFERED.uuid: owner}, node_uid)
        assert OFFERED.uuid in claims.record.offered
        await asyncio.sleep(LOOK)


def test_taints_a_gpu_before_it_leaves_the_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts without the API server cannot write slices: it does not know its node.

    The lists of claims may come back first, and no scheduler has heard of a taint by then.
    """

    async def scene() -> None:
        async with serving(tmp_path, monkeypatch, refuses=False) as claims:
            await stays(claims, "")

    play(scene)


def test_frees_no_gpu_while_the_api_server_refuses_everything_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no roles for a moment; other nodes have claims, so the rights are not gone."""

    async def scene() -> None:
        async with serving(tmp_path, monkeypatch, refuses=True) as claims:
            await stays(claims, "uid")

    play(scene)


def test_tells_the_kubelet_of_a_fault_without_the_api_server(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts without it does not know its node, and the kubelet asks all the same."""

    async def scene() -> None:
        async with serving(sockets, monkeypatch, refuses=False) as claims:
            desired = DesiredState(config="{}", has_claims=True)
            claims.suspend(desired, "the driver does not answer", "")
            server = asyncio.create_task(claims.serve())
            while not (sockets / SOCKET).exists():
                await asyncio.sleep(LOOK)
            async with grpc.aio.insecure_channel(f"unix:{sockets / SOCKET}") as channel:
                stub = drahealth_pb2_grpc.DRAResourceHealthStub(channel)
                call = stub.NodeWatchResources(drahealth_pb2.NodeWatchResourcesRequest())
                answer = await call.read()
                call.cancel()
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)
            messages = [device.message for device in answer.devices]
            assert messages == ["the driver does not answer"]

    play(scene)
