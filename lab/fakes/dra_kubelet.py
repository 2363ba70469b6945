"""The kubelet's side of Dynamic Resource Allocation: its plugin watcher, and its calls on drivers.

It follows the real one (1.36): a socket that appears in its registry is asked what it is, and told
whether it was taken in; a driver is called with the claims of a pod at once, at most 45 s.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.kubelet.api import dra_pb2, dra_pb2_grpc, drahealth_pb2, drahealth_pb2_grpc
from divvy.agent.kubelet.api import pluginregistration_pb2 as registration
from divvy.agent.kubelet.api import pluginregistration_pb2_grpc as registration_grpc

_CALL_SECONDS = 45.0


class Failed(Exception):
    """A claim was not prepared, or not given back."""


class FakeDraKubelet:
    """Start with ``async with fake_dra_kubelet(folder) as kubelet``."""

    def __init__(self, folder: Path) -> None:
        self.plugins = folder / "plugins" / "divvy.gpu"
        self.registry = folder / "registry"
        self.registry.mkdir(parents=True)
        self.registrations = 0
        self.endpoint: Path | None = None
        self.health: dict[str, tuple[str, str]] = {}
        self._seen: tuple[int, int] | None = None
        self._task: asyncio.Task[None] | None = None
        self._health_task: asyncio.Task[None] | None = None

    @property
    def registered(self) -> bool:
        return self.endpoint is not None

    async def start(self) -> None:
        self._seen = None
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        for task in (self._task, self._health_task):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        self.endpoint = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            sockets = list(self.registry.glob("*.sock"))
            if not sockets:
                self.endpoint, self._seen = None, None
                continue
            with contextlib.suppress(OSError, grpc.RpcError):
                status = sockets[0].stat()
                seen = (status.st_ino, status.st_ctime_ns)
                if seen != self._seen:
                    await self._register(sockets[0])
                    self._seen = seen

    async def _register(self, socket: Path) -> None:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            stub = registration_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(registration.InfoRequest(), timeout=1)
            assert info.type == "DRAPlugin"
            assert "v1.DRAPlugin" in info.supported_versions
            self.endpoint = Path(info.endpoint)
            self.registrations += 1
            status = registration.RegistrationStatus(plugin_registered=True)
            await stub.NotifyRegistrationStatus(status, timeout=1)
        if self._health_task is not None:
            self._health_task.cancel()
        self._health_task = asyncio.create_task(self._follow_health(self.endpoint))

    async def _follow_health(self, endpoint: Path) -> None:
        words = {drahealth_pb2.HEALTHY: "Healthy", drahealth_pb2.UNHEALTHY: "Unhealthy"}
        with contextlib.suppress(grpc.RpcError):
            async with grpc.aio.insecure_channel(f"unix:{endpoint}") as channel:
                stub = drahealth_pb2_grpc.DRAResourceHealthStub(channel)
                request = drahealth_pb2.NodeWatchResourcesRequest()
                async for answer in stub.NodeWatchResources(request):
                    self.health = {
                        device.device.device_name: (words[device.health], device.message)
                        for device in answer.devices
                    }

    async def prepare(self, *claims: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Prepare claims and return their devices by UID; raises Failed with every error."""
        answer = await self._call("NodePrepareResources", claims)
        _raise(answer)
        return {uid: list(entry.devices) for uid, entry in answer.claims.items()}

    async def unprepare(self, *claims: Mapping[str, Any]) -> None:
        """Give claims back; raises Failed."""
        _raise(await self._call("NodeUnprepareResources", claims))

    async def _call(self, method: str, claims: Iterable[Mapping[str, Any]]) -> Any:
        if self.endpoint is None:
            raise Failed("no driver is registered")
        requests = {
            "NodePrepareResources": dra_pb2.NodePrepareResourcesRequest,
            "NodeUnprepareResources": dra_pb2.NodeUnprepareResourcesRequest,
        }
        listed = [
            dra_pb2.Claim(
                namespace=claim["metadata"]["namespace"],
                name=claim["metadata"]["name"],
                uid=claim["metadata"]["uid"],
            )
            for claim in claims
        ]
        async with grpc.aio.insecure_channel(f"unix:{self.endpoint}") as channel:
            call = getattr(dra_pb2_grpc.DRAPluginStub(channel), method)
            try:
                answer = await call(requests[method](claims=listed), timeout=_CALL_SECONDS)
            except grpc.RpcError as error:
                raise Failed(str(error)) from None
        missing = [claim.uid for claim in listed if claim.uid not in answer.claims]
        assert not missing, f"{method} did not answer about {missing}"
        return answer

    async def until(self, met: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something is true."""
        async with asyncio.timeout(seconds):
            while not met():
                await asyncio.sleep(0.02)


def _raise(answer: Any) -> None:
    problems = [claim.error for claim in answer.claims.values() if claim.error]
    if problems:
        raise Failed("; ".join(problems))


@asynccontextmanager
async def fake_dra_kubelet(folder: Path) -> AsyncIterator[FakeDraKubelet]:
    """Run the side of a fake kubelet that looks after claims."""
    kubelet = FakeDraKubelet(folder)
    await kubelet.start()
    try:
        yield kubelet
    finally:
        await kubelet.stop()
