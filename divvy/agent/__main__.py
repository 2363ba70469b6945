"""Start the agent: ``python -m divvy.agent``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from divvy.agent.agent import Agent
from divvy.agent.cluster import ClusterLink
from divvy.agent.debug import SOCKET, state_page
from divvy.agent.metrics import metrics_page
from divvy.agent.one_per_node import NodeLock
from divvy.agent.settings import BadSetting, Settings, settings_from
from divvy.agent.web import Answer, serve, serve_on_socket, text

_LOCK_SECONDS = 2.0
_log = logging.getLogger("divvy.agent")


class _Process:
    """The process around an agent: its endpoints, and its turn to be the node's only agent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._agent: Agent | None = None
        self._hindrance = "starting"

    async def run(self) -> None:
        """Wait for the node to be free of other agents, then be its agent until cancelled."""
        settings = self._settings
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
        server = await serve(settings.listen, settings.port, pages)
        lock = NodeLock(settings.state_folder, f"{settings.namespace}/{settings.config_map}")
        try:
            await self._until_alone(lock)
            link = ClusterLink(settings.node, settings.namespace, settings.config_map)
            self._agent = Agent(settings, link)
            # Behind the lock: the socket is that of the node's agent.
            debug = await serve_on_socket(
                settings.state_folder / SOCKET, {"/": self._state, **pages}
            )
            async with debug:
                await self._agent.run()
        finally:
            lock.release()
            server.close()

    async def _until_alone(self, lock: NodeLock) -> None:
        while other := lock.take():
            words = f"the Divvy agent of {other} is at work on this node: waiting until it is gone"
            if words != self._hindrance:
                _log.error("%s", words)
            self._hindrance = words
            await asyncio.sleep(_LOCK_SECONDS)

    async def _metrics(self) -> Answer:
        if self._agent is None:
            return text("503 Service Unavailable", f"{self._hindrance}\n")
        page = await metrics_page(self._agent, self._settings.node)
        return "200 OK", "text/plain; version=0.0.4", page

    async def _state(self) -> Answer:
        return state_page({} if self._agent is None else self._agent.state())

    async def _health(self) -> Answer:
        return text("200 OK", "alive\n")

    async def _ready(self) -> Answer:
        agent = self._agent
        if agent is None:
            return text("503 Service Unavailable", f"{self._hindrance}\n")
        if agent.status is None:
            return text("503 Service Unavailable", "the first look at the node is not done\n")
        if agent.kubelet.rivals:
            return text("503 Service Unavailable", f"{agent.status.reason}\n")
        if agent.kubelet.published() and not agent.kubelet.registered:
            return text("503 Service Unavailable", "not registered with the kubelet\n")
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


def main() -> None:
    """Read the settings and run until told to stop."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    try:
        settings = settings_from(os.environ)
    except BadSetting as problem:
        sys.exit(f"divvy agent: {problem}")
    asyncio.run(_run(settings))


if __name__ == "__main__":
    main()
