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
from divvy.agent.claims.claim_users import Containers
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.server import SOCKET
from divvy.agent.claims.service import Claims
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.owner import KubeletFence, hand_over
from divvy.agent.kubelet.api import drahealth_pb2, drahealth_pb2_grpc
from divvy.agent.plugin.device_holders import HoldersUnknown
from divvy.agent.settings import settings_from
from divvy.kube.errors import FORBIDDEN, ApiError
from tests.agent.claim_values import BY_SIZE, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, snapshot

LOOK = 0.02
AGENT = "divvy/agent-x"
OFFERED = offered_gpu(0, BY_SIZE)
SEEN = snapshot(gpu(0))


class Unallocated:
    """An API server that has no claims; it keeps slices out of reach, or ``refuses`` everything."""

    def __init__(self, *, refuses: bool) -> None:
        self.refuses = refuses

    async def claims(self, _unread: Any, _patience: float) -> AsyncIterator[dict[str, Any]]:
        if self.refuses:
            raise ApiError(FORBIDDEN, "RBAC: clusterrole not found")
        for listed in list[dict[str, Any]]():
            yield listed

    async def slices(self, _patience: float) -> None:
        raise ApiError(FORBIDDEN, "RBAC: clusterrole not found")


class Kubelet:
    """A kubelet on whose node a second pod has come to use a claim.

    It may be away, or have just ``started``: then it lists no pods yet but those from files.
    """

    away = started = False
    static: frozenset[str] = frozenset()

    async def claim_containers(self) -> tuple[Containers, frozenset[str]]:
        if self.away:
            raise grpc.RpcError
        if self.started:
            return {}, self.static
        used = [("default/shared", "main"), ("default/second", "main")]
        return {("default", "shared"): used}, self.static | {AGENT, *(pod for pod, _ in used)}


@asynccontextmanager
async def serving(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, refuses: bool, is_held: bool = False
) -> AsyncIterator[Claims]:
    """Serve claims that are offered a GPU, as an agent that has just started."""
    monkeypatch.setattr(retirement, "_LOOK_SECONDS", LOOK)
    monkeypatch.setattr(retirement, "_SETTLED_SECONDS", 3 * LOOK)
    monkeypatch.setattr(service, "ClaimsApi", lambda *_: Unallocated(refuses=refuses))
    folders = {
        f"DIVVY_{name}_FOLDER": str(folder) for name in ("STATE", "CDI", "CLAIMS", "REGISTRY")
    }
    settings = settings_from(
        {"NODE_NAME": "node", "NAMESPACE": "divvy", "POD_NAME": "agent-x", **folders}
    )
    shared = claim("shared", held(OFFERED, "-share", 3000))
    record = claim_record(OFFERED, claims=(shared,) if is_held else ())
    ClaimsFile(folder, folder, lambda: None).save(record)
    driver: Any = SimpleNamespace(snapshot=SEEN, problem="")
    injection: Any = SimpleNamespace(by_cdi=True, described=(), described_as=lambda _: None)
    health: Any = SimpleNamespace(health=Health())
    pod_resources: Any = Kubelet()
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


async def test_taints_a_gpu_before_it_leaves_the_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts without the API server cannot write slices: it does not know its node.

    The lists of claims may come back first, and no scheduler has heard of a taint by then.
    """
    async with serving(tmp_path, monkeypatch, refuses=False) as claims:
        await stays(claims, "")


async def test_frees_no_gpu_while_the_api_server_refuses_everything_at_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows no roles for a moment; other nodes have claims, so the rights are not gone."""
    async with serving(tmp_path, monkeypatch, refuses=True) as claims:
        await stays(claims, "uid")


async def test_tells_the_kubelet_of_a_fault_without_the_api_server(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts without it does not know its node, and the kubelet asks all the same."""
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


async def test_looks_after_the_share_of_a_pod_that_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path, monkeypatch, refuses=False, is_held=True) as claims:
        (limits,) = (await claims.limits()).values()
        pods = {"default/shared", "default/second"}
        assert {holder.pod for holder in limits.holders} == pods
        (holders,) = claims.share_pods.values()
        assert {holder.pod for holder in holders} == pods
        record, named = await claims.users()
        assert {pod for pod, _ in record.claims["uid-shared"].pods} == {"shared", "second"}
        assert {holder.pod for holder in named} == pods


@pytest.mark.parametrize("static", [(), ("kube-system/static",)])
@pytest.mark.parametrize("what", ["away", "started"])
async def test_takes_a_kubelet_that_does_not_tell_for_no_proof_of_no_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, static: tuple[str, ...]
) -> None:
    """An alert that a pod uses more than its share must not clear for that."""
    async with serving(tmp_path, monkeypatch, refuses=False, is_held=True) as claims:
        kubelet: Any = claims._pod_resources
        kubelet.static = frozenset(static)
        known = await claims.limits()
        before = await claims.users()
        setattr(kubelet, what, True)
        with pytest.raises(HoldersUnknown):
            await claims.limits()
        assert await claims.users() == before
        setattr(kubelet, what, False)
        assert await claims.limits() == known
