"""Start the agent: ``python -m divvy.agent``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from divvy.agent.agent import Agent
from divvy.agent.api_server.client import ApiServer
from divvy.agent.debug import SOCKET, state_page
from divvy.agent.metrics import metrics_page
from divvy.agent.node_lock import NodeLock
from divvy.agent.settings import InvalidSetting, Settings, settings_from
from divvy.agent.web import Answer, Page, cached, serve, serve_on_socket, text
from divvy.kube.errors import KubeconfigError

_LOCK_SECONDS = 2.0
_METRICS_SECONDS = 5.0
_log = logging.getLogger("divvy.agent")


class _Process:
    """The process around an agent: its endpoints, and the lock that keeps a second one out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._agent: Agent | None = None
        self._reason = "starting"

    async def run(self) -> None:
        """Wait for the node to be free of other agents, then be its agent until cancelled."""
        settings = self._settings
        # Readings of all GPUs, once in some seconds however many ask.
        metrics = cached(self._metrics, _METRICS_SECONDS)
        pages = {"/metrics": metrics, "/healthz": self._health, "/readyz": self._ready}
        server = await serve(settings.listen, settings.port, pages)
        lock = NodeLock(settings.state_folder, f"{settings.namespace}/{settings.config_map}")
        try:
            await self._until_alone(lock)
            api = ApiServer(
                settings.node, settings.namespace, settings.config_map, settings.watch_seconds
            )
            self._agent = Agent(settings, api)
            # Behind the lock: the socket is that of the node's agent.
            async with self._debug_socket(pages):
                await self._agent.run()
        finally:
            lock.release()
            server.close()

    @asynccontextmanager
    async def _debug_socket(self, pages: Mapping[str, Page]) -> AsyncIterator[None]:
        """Serve the debug socket; on a disk without room for it the agent works without."""
        try:
            path = self._settings.state_folder / SOCKET
            debug = await serve_on_socket(path, {"/": self._state, **pages})
        except OSError as error:
            _log.warning("the debug socket is not served until the agent's next start: %s", error)
            yield
            return
        async with debug:
            yield

    async def _until_alone(self, lock: NodeLock) -> None:
        while other := lock.take():
            reason = (
                f"the Divvy agent of {other} is already running on this node; "
                "waiting for it to stop"
            )
            if reason != self._reason:
                _log.error("%s", reason)
            self._reason = reason
            await asyncio.sleep(_LOCK_SECONDS)

    async def _metrics(self) -> Answer:
        if self._agent is None:
            return text("503 Service Unavailable", f"{self._reason}\n")
        page = await metrics_page(self._agent, self._settings.node)
        return "200 OK", "text/plain; version=0.0.4", page

    async def _state(self) -> Answer:
        return state_page({} if self._agent is None else self._agent.state())

    async def _health(self) -> Answer:
        hanging = "" if self._agent is None else self._agent.hanging()
        return text("503 Service Unavailable" if hanging else "200 OK", f"{hanging or 'alive'}\n")

    async def _ready(self) -> Answer:
        agent = self._agent
        if agent is None:
            return text("503 Service Unavailable", f"{self._reason}\n")
        if agent.status is None:
            return text("503 Service Unavailable", "node discovery has not finished yet\n")
        if agent.plugins.rivals:
            return text("503 Service Unavailable", f"{agent.status.reason}\n")
        if agent.plugins.advertised() and not agent.plugins.registered:
            reason = agent.plugins.problem or "not registered with the kubelet"
            return text("503 Service Unavailable", f"{reason}\n")
        if refused := agent.refused():
            return text("503 Service Unavailable", f"{refused}\n")
        return text("200 OK", f"{agent.status.state} {agent.status.reason}\n")


async def _run(settings: Settings) -> None:
    work = asyncio.ensure_future(_Process(settings).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        _log.info("stopping")


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Return False for a call that a stop cancels before it began: gRPC logs it as an error."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


def main() -> None:
    """Read the settings and run until told to stop."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("grpc._cython.cygrpc").addFilter(is_worth_a_line)
    try:
        asyncio.run(_run(settings_from(os.environ)))
    except (InvalidSetting, KubeconfigError) as problem:
        sys.exit(f"divvy agent: {problem}")


if __name__ == "__main__":
    main()
