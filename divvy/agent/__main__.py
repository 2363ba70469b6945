"""Start the agent: ``python -m divvy.agent``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from divvy.agent.agent import Agent
from divvy.agent.api_server.client import ApiServer
from divvy.agent.debug import SOCKET, state_page
from divvy.agent.gpu.status import NodeStatus
from divvy.agent.metrics.node_metrics import metrics_page
from divvy.agent.node_lock import NodeLock
from divvy.agent.settings import InvalidSetting, Settings, settings_from
from divvy.agent.web import Answer, Page, cached, serve, serve_on_socket, text
from divvy.kube.errors import KubeconfigError, KubeError
from divvy.model.api_names import AGENT_ANNOTATION, STATUS_ANNOTATION

_LOCK_SECONDS = 2.0
# A DaemonSet has its pod back in seconds; one whose agent fails at each start, in five minutes.
_GONE_SECONDS = 600.0
_METRICS_SECONDS = 5.0
_log = logging.getLogger("divvy.agent")


class Absence:
    """How long the agent whose node it is has been away: the lock is free, and it does not come."""

    def __init__(self) -> None:
        self._since: float | None = None

    def lasts(self, now: float, *, is_away: bool) -> bool:
        """Return whether it is gone for good, by what is seen now (monotonic)."""
        if not is_away:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        return now - self._since >= _GONE_SECONDS


def not_ours(other: str, name: str, node: str) -> str:
    """Return why an agent does not serve a node that another one has had, and what to do."""
    return (
        f"this node is served by the Divvy agent of {other}, which does not run now; that of "
        f"{name} changes nothing here: two deployments select the node. If the other one was "
        f"removed, this one takes the node {_GONE_SECONDS / 60:.0f} min after it was last seen, or "
        "at once by "
        f"`kubectl annotate node {node} {AGENT_ANNOTATION}={name} --overwrite`"
    )


class _Process:
    """The process around an agent: its endpoints, and the lock that keeps a second one out."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._name = f"{settings.namespace}/{settings.config_map}"
        self._agent: Agent | None = None
        self._reason = "starting"

    async def run(self) -> None:
        """Wait for the node to be free of other agents, then be its agent until cancelled."""
        settings = self._settings
        # Readings of all GPUs, once in some seconds however many ask.
        metrics = cached(self._metrics, _METRICS_SECONDS)
        pages = {"/metrics": metrics, "/healthz": self._health, "/readyz": self._ready}
        server = await serve(settings.listen, settings.port, pages)
        lock = NodeLock(settings.state_folder, self._name)
        api = ApiServer(
            settings.node, settings.namespace, settings.config_map, settings.watch_seconds
        )
        try:
            await self._until_alone(lock, api)
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

    async def _until_alone(self, lock: NodeLock, api: ApiServer) -> None:
        away = Absence()
        take_over = False
        while other := lock.take(take_over=take_over):
            if lock.is_free:
                reason = not_ours(other, self._name, self._settings.node)
            else:
                reason = (
                    f"the Divvy agent of {other} is already running on this node; "
                    "waiting for it to stop"
                )
            if reason != self._reason:
                _log.error("%s", reason)
            self._reason = reason
            take_over = False
            if away.lasts(monotonic(), is_away=lock.is_free):
                take_over = True
                _log.warning("the agent of %s has not come back: this one takes its node", other)
            elif lock.is_free:
                take_over = await self._is_told(api, reason)
            if not take_over:
                await asyncio.sleep(_LOCK_SECONDS)

    async def _is_told(self, api: ApiServer, reason: str) -> bool:
        """Say on the node why nobody serves it, and return whether this agent is to do it."""
        status = NodeStatus("", None, None, "", reason, "", False, (), {}).annotation()
        try:
            node = await api.patch_node({}, {STATUS_ANNOTATION: status})
        except KubeError as error:
            _log.debug("the node cannot be written: %s", error)
            return False
        return node.annotations.get(AGENT_ANNOTATION) == self._name

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
