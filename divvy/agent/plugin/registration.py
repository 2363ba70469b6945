"""All device plugin servers of the node and their registration with the kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import grpc

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs
from divvy.agent.plugin.device_plugin import API_VERSION, Allocator, ResourceServer
from divvy.agent.plugin.inventory import Resource
from divvy.agent.plugin.plugin_sockets import (
    folders_version,
    serving_sockets,
    sockets_beside,
)
from divvy.agent.timers import next_tick_or

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.5
# A kubelet that starts admits the pods that run, and fails those for whose devices it finds nobody,
# such as those of an init container that has ended (kubernetes/kubernetes#138446). So the first
# attempts follow each other closely, and start again with each socket of a kubelet.
_FIRST_RETRY_SECONDS, _RETRY_SECONDS = 0.01, 1.0
_SOCKET_SECONDS = 0.02
# Else a channel takes over the pause that an earlier one's failure to connect began.
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


class DevicePlugins:
    """Keeps one registered server for every resource that was ever advertised.

    A resource that is no longer advertised goes on being served with an empty list,
    so that the node shows 0 at once instead of a stale number for five minutes.
    Registration is repeated when the kubelet's socket is a new one, when ours
    was removed, when the kubelet ends a stream, and for other options. While another device plugin,
    or a driver of claims whose socket is in ``registry``, serves the same GPUs (``rivals``),
    nothing of ours is served or registered: the kubelet would take whichever registered last. A
    resource whose socket cannot be made is tried again, and holds up no other.
    """

    def __init__(
        self,
        folder: Path,
        allocator: Allocator,
        on_change: Callable[[], None],
        registry: Path | None = None,
    ) -> None:
        self._folder = folder
        self._folders = (folder,) if registry is None else (folder, registry)
        self._socket = folder / "kubelet.sock"
        self._allocator = allocator
        self._servers: dict[str, ResourceServer] = {}
        self._unregistered: set[str] = set()
        self._registering: str | None = None
        # Where this kubelet was asked to connect, by resource, and when last (monotonic).
        self._tried: dict[str, Path] = {}
        self._tried_at: dict[str, float] = {}
        self._identity: tuple[int, int] | None = None
        # The socket at the last attempts, and how many of them in a row failed.
        self._attempted: tuple[int, int] | None = None
        self._failures = 0
        self._debouncer = asyncio.Event()
        self._on_change = on_change
        self._reported: set[str] = set()  # since all were registered last
        # Why a resource is not served.
        self._unserved: dict[str, str] = {}
        # The folders' version at the last look, where another look would find the same.
        self._calm: tuple[int, ...] | None = None
        self.listed = 0.0  # when a list became another last (monotonic)
        self.rivals: dict[str, str] = {}

    @property
    def registered(self) -> bool:
        """Return whether the kubelet knows every resource we serve."""
        is_known = self._identity is not None and self._registering is None
        return is_known and not self._unregistered

    @property
    def current(self) -> bool:
        """Return whether the kubelet has been sent every list as it is now."""
        servers = self._servers.values()
        return self.registered and bool(servers) and all(server.current for server in servers)

    @property
    def problem(self) -> str:
        """Return which resource cannot be served and why, "" if all can."""
        problems = sorted(self._unserved.items())
        return f"{problems[0][0]} cannot be served: {problems[0][1]}" if problems else ""

    def resend(self) -> None:
        """Send every list again, so that the kubelet brings its checkpoint up to date."""
        for server in self._servers.values():
            server.resend()

    def advertised(self) -> tuple[Resource, ...]:
        """Return what is being served, sorted by name."""
        return tuple(server.resource for _, server in sorted(self._servers.items()))

    async def advertise(self, resources: Sequence[Resource]) -> bool:
        """Serve exactly these resources; True where a list changed."""
        changed = False
        advertised = {resource.name: resource for resource in resources}
        for name, server in self._servers.items():
            if name not in advertised:
                changed |= server.advertise(replace(server.resource, devices=()))
        for name, resource in advertised.items():
            known = self._servers.get(name)
            if known is not None:
                options = known.options
                changed |= known.advertise(resource)
                if known.options != options:
                    # It learns of them when it connects.
                    self._unregistered.add(name)
                    self._debouncer.set()
                continue
            server = ResourceServer(resource, self._folder, self._allocator, self._stream_ended)
            # Not among the others before: the watch would start it, too.
            if not self.rivals:
                await self._serve(name, server)
            self._servers[name] = server
            self._unregistered.add(name)
            changed = True
            self._debouncer.set()
        if changed:
            self.listed = monotonic()
        return changed

    async def watch(self) -> None:
        """Register what needs it; never returns."""
        while True:
            try:
                await self._keep_registered()
            except OSError as error:
                self._report(f"the kubelet's plugin folder: {error}")
            if not self._unregistered:
                await next_tick_or(self._debouncer, _LOOK_SECONDS)
                self._debouncer.clear()
                # A kubelet that ends each stream at once is not asked again without a pause.
                if self._lasted:
                    self._failures = 0
                    continue
            await self._pause()
            self._debouncer.clear()

    @property
    def _lasted(self) -> bool:
        """Return whether every registration that has ended lasted for a while."""
        tried = (self._tried_at.get(name, 0.0) for name in self._unregistered)
        return all(monotonic() - at > _RETRY_SECONDS for at in tried)

    async def _pause(self) -> None:
        """Wait until the next attempt: at once where the kubelet's socket is another one."""
        end = monotonic() + retry_seconds(self._failures)
        self._failures += 1
        while (left := end - monotonic()) > 0 and not self._debouncer.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, _SOCKET_SECONDS)):
                    await self._debouncer.wait()
            if _identity(self._socket) != self._attempted:
                self._failures = 0
                return

    async def stop(self) -> None:
        """Close every server; what else there is to undo at the end is not held up by a file."""
        for name, server in list(self._servers.items()):
            try:
                await server.stop()
            except OSError as error:
                _log.warning("the socket of %s is not removed: %s", name, error)

    def _stream_ended(self, resource: str) -> None:
        self._unregistered.add(resource)
        self._debouncer.set()

    async def _keep_registered(self) -> None:
        version = folders_version(self._folders)
        if version is not None and version == self._calm and not self._unregistered:
            return
        self._calm = None
        identity = self._attempted = _identity(self._socket)
        others = sockets_beside(self._folders)
        rivals = serving_sockets(others)
        if rivals != self.rivals:
            self.rivals = rivals
            self._on_change()
            self._identity = None  # all servers start and register again when the last has gone
            await self.stop()
        if rivals:
            return
        if identity is None:
            self._identity = None
            return
        if identity != self._identity:
            # A new kubelet removed every socket in its folder when it started. A copy, since a
            # resource may be added meanwhile: by whom adds it, it is started and to be registered.
            self._tried.clear()
            for name, server in list(self._servers.items()):
                await self._serve(name, server)
                self._unregistered.add(name)
        else:
            for name, server in list(self._servers.items()):
                if not server.listens:
                    await self._serve(name, server)
                    self._unregistered.add(name)
        for name in sorted(self._unregistered - self._unserved.keys()):
            # While the kubelet answers, it may end the stream, and other options may be advertised:
            # then the name is to be registered once more.
            self._unregistered.discard(name)
            self._registering, is_registered = name, False
            try:
                is_registered = await self._register(name)
            finally:
                self._registering = None
                if not is_registered:
                    self._unregistered.add(name)
        self._identity = identity
        if not self._unregistered:
            self._reported.clear()
        # A socket of others may get somebody who listens at any time.
        self._calm = None if others else version

    async def _serve(self, name: str, server: ResourceServer) -> None:
        """Listen, from the start; what keeps a resource from that is noted."""
        before = self.problem
        try:
            await server.stop()
            await server.start()
            self._unserved.pop(name, None)
        except OSError as error:
            self._unserved[name] = str(error)
        if self.problem != before:
            if self.problem:
                _log.warning("%s", self.problem)
            self._on_change()

    async def _register(self, resource: str) -> bool:
        server = self._servers[resource]
        if self._tried.get(resource) == server.socket:
            # From Kubernetes 1.37 a kubelet refuses a second connection to a socket, and then does
            # not notice the end of the first: it would refuse for as long as it lives
            # (pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go, deregisterClient). For a
            # moment it lists nothing; what pods hold they keep.
            await server.move()
        self._tried[resource], self._tried_at[resource] = server.socket, monotonic()
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=server.socket.name,
            resource_name=resource,
            options=server.options,
        )
        async with grpc.aio.insecure_channel(f"unix:{self._socket}", _OPTIONS) as channel:
            try:
                await stubs.RegistrationStub(channel).Register(request, timeout=15)
            except grpc.RpcError as error:
                self._report(f"the kubelet refused {resource}: {error.details()}")
                return False
        _log.info("registered %s with the kubelet", resource)
        return True

    def _report(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            _log.warning("%s", text)


def retry_seconds(failures: int) -> float:
    """Return the pause after so many attempts in a row that failed."""
    return min(_RETRY_SECONDS, _FIRST_RETRY_SECONDS * (1 << min(failures, 16)))


def _identity(socket: Path) -> tuple[int, int] | None:
    try:
        status = socket.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns
