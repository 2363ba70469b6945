"""The driver's sockets: the kubelet finds one in its registry, and calls on the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.claims.preparation import ClaimProblem, Preparation
from divvy.agent.claims.record import HeldClaim
from divvy.agent.inject.claim_cdi import cdi_name, qualified_name
from divvy.agent.kubelet.api import (
    dra_pb2,
    dra_pb2_grpc,
    drahealth_pb2,
    drahealth_pb2_grpc,
    pluginregistration_pb2,
    pluginregistration_pb2_grpc,
)
from divvy.agent.timers import next_tick_or
from divvy.model.api_names import CLAIMS_DRIVER

_log = logging.getLogger(__name__)
_VERSIONS = ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth")
_LOOK_SECONDS = 0.2
# The kubelet gives a call up after 45 s; what goes on longer is there for the next call.
_ANSWER_SECONDS = 43.0
_HEALTH_SECONDS, _HEALTH_VALID_SECONDS = 20.0, 60
_MAX_MESSAGE = 1024
SOCKET, REGISTRATION = "dra.sock", f"{CLAIMS_DRIVER}-reg.sock"


@dataclass(frozen=True)
class DeviceHealth:
    """A device of this node's pool, and why it is unhealthy ("" if it is not)."""

    device: str
    problem: str


class ClaimServer(
    dra_pb2_grpc.DRAPluginServicer,
    drahealth_pb2_grpc.DRAResourceHealthServicer,
    pluginregistration_pb2_grpc.RegistrationServicer,
):
    """Serves the kubelet while ``serving`` is set; ``problem`` says why it cannot.

    ``registered`` tells whether the kubelet has taken the driver in since the sockets were opened.
    """

    def __init__(
        self,
        folder: Path,
        registry: Path,
        pool: str,
        preparation: Preparation,
        health: Callable[[], Iterable[DeviceHealth]],
        on_change: Callable[[], None],
        on_prepared: Callable[[float], None],
    ) -> None:
        self._socket = folder / SOCKET
        self._registration = registry / REGISTRATION
        self._pool = pool
        self._preparation = preparation
        self._health = health
        self._on_change = on_change
        self._on_prepared = on_prepared
        self._health_changed = asyncio.Event()
        self._servers: list[grpc.aio.Server] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._serving = False
        self._debouncer = asyncio.Event()
        self.registered = False
        self.problem = ""

    @property
    def serving(self) -> bool:
        """Return whether there is something to serve."""
        return self._serving

    @serving.setter
    def serving(self, serving: bool) -> None:
        if serving != self._serving:
            self._serving = serving
            self._debouncer.set()  # at once: the kubelet may be about to admit pods again

    async def run(self) -> None:
        """Listen while there is something to serve; never returns."""
        while True:
            try:
                await self._follow()
                self._tell("")
            except (OSError, RuntimeError) as error:
                self._tell(f"claims are not served: {error}")
                await self.stop()
            await next_tick_or(self._debouncer, _LOOK_SECONDS)
            self._debouncer.clear()

    def _tell(self, problem: str) -> None:
        if problem == self.problem:
            return
        if problem:
            _log.warning("%s", problem)
        self.problem = problem
        self._on_change()

    async def _follow(self) -> None:
        there = self._socket.exists() and self._registration.exists()
        if self._servers and not (self.serving and there):
            await self.stop()
        if self.serving and not self._servers:
            await self._start()
        if not self.serving and self._registration.exists():
            self._registration.unlink()  # of an agent that was killed

    async def _start(self) -> None:
        for path in (self._registration, self._socket):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        driver, registration = grpc.aio.server(), grpc.aio.server()
        self._servers = [driver, registration]
        dra_pb2_grpc.add_DRAPluginServicer_to_server(self, driver)
        drahealth_pb2_grpc.add_DRAResourceHealthServicer_to_server(self, driver)
        pluginregistration_pb2_grpc.add_RegistrationServicer_to_server(self, registration)
        # The kubelet calls as soon as it sees the second.
        for server, path in ((driver, self._socket), (registration, self._registration)):
            server.add_insecure_port(f"unix:{path}")
            await server.start()

    async def stop(self) -> None:
        """Close the sockets: the kubelet removes the node's slices 30 s later."""
        servers, self._servers = self._servers, []
        self.registered = False
        for path in (self._registration, self._socket):
            path.unlink(missing_ok=True)
        for server in servers:
            await server.stop(None)

    def tell_health(self) -> None:
        """Tell the kubelet what has changed of the health of devices."""
        changed, self._health_changed = self._health_changed, asyncio.Event()
        changed.set()

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Return what this driver is and where it is called."""
        return pluginregistration_pb2.PluginInfo(
            type="DRAPlugin",
            name=CLAIMS_DRIVER,
            endpoint=str(self._socket),
            supported_versions=_VERSIONS,
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Log what the kubelet made of it."""
        self.registered = request.plugin_registered
        if request.plugin_registered:
            _log.info("registered the driver of claims with the kubelet")
        else:
            _log.error("the kubelet refused the driver of claims: %s", request.error)
        self._on_change()
        return pluginregistration_pb2.RegistrationStatusResponse()

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Prepare claims; each has an error of its own."""
        answer = dra_pb2.NodePrepareResourcesResponse()
        done = await self._per_claim(request.claims, self._prepare)
        for uid, (devices, problem) in done.items():
            answer.claims[uid].devices.extend(devices or ())
            answer.claims[uid].error = problem
        return answer

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Give claims back; each has an error of its own."""
        answer = dra_pb2.NodeUnprepareResourcesResponse()
        done = await self._per_claim(request.claims, self._unprepare)
        for uid, (_, problem) in done.items():
            answer.claims[uid].error = problem
        return answer

    async def NodeWatchResources(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        """Send the health of all devices now, after every change and now and then."""
        while True:
            changed = self._health_changed
            now = int(time.time())
            yield drahealth_pb2.NodeWatchResourcesResponse(
                devices=[self._device_health(health, now) for health in self._health()]
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEALTH_SECONDS):
                    await changed.wait()

    def _device_health(self, health: DeviceHealth, now: int) -> Any:
        healthy = drahealth_pb2.UNHEALTHY if health.problem else drahealth_pb2.HEALTHY
        return drahealth_pb2.DeviceHealth(
            device=drahealth_pb2.DeviceIdentifier(pool_name=self._pool, device_name=health.device),
            health=healthy,
            last_updated_time=now,
            health_check_timeout_seconds=_HEALTH_VALID_SECONDS,
            message=health.problem[:_MAX_MESSAGE],
        )

    async def _prepare(self, claim: Any) -> list[Any]:
        began = time.monotonic()
        held = await self._preparation.prepare(claim.namespace, claim.name, claim.uid)
        seconds = time.monotonic() - began
        self._on_prepared(seconds)
        _log.info("prepared %s in %.0f ms", held.text, 1000 * seconds)
        return _devices(held)

    async def _unprepare(self, claim: Any) -> None:
        await self._preparation.unprepare(claim.uid)
        _log.info("released claim %s/%s", claim.namespace, claim.name)

    async def _per_claim(
        self, claims: Iterable[Any], work: Callable[[Any], Coroutine[Any, Any, Any]]
    ) -> Mapping[str, tuple[Any, str]]:
        """Do the work of every claim, each in a task that outlives this call."""
        tasks = {}
        for claim in claims:
            task = asyncio.create_task(work(claim))
            self._tasks.add(task)
            task.add_done_callback(self._ended)
            tasks[claim.uid] = task
        if tasks:
            await asyncio.wait(tasks.values(), timeout=_ANSWER_SECONDS)
        return {uid: _result(task) for uid, task in tasks.items()}

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, ClaimProblem):
                _log.warning("%s", error)
            else:
                _log.error("a claim failed", exc_info=error)


def _result(task: asyncio.Task[Any]) -> tuple[Any, str]:
    """Return what a task has come to: its result, or why it has not ended yet."""
    if not task.done():
        return None, "the GPU is still busy with this claim; the next attempt should succeed"
    if task.cancelled():
        return None, "the driver is stopping"
    error = task.exception()
    if error is None:
        return task.result(), ""
    if isinstance(error, ClaimProblem):
        return None, str(error)
    return None, f"internal error: {type(error).__name__}: {error}"


def _devices(claim: HeldClaim) -> list[Any]:
    return [
        dra_pb2.Device(
            request_names=[held.request],
            pool_name=held.pool,
            device_name=held.device.name,
            cdi_device_ids=[qualified_name(cdi_name(claim, held))],
            share_id=held.share_id or None,
        )
        for held in claim.devices
    ]
