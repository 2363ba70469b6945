"""Start the agent: ``python -m divvy.agent``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from divvy.agent.agent import Agent
from divvy.agent.cluster import ClusterLink
from divvy.agent.metrics import metrics_page
from divvy.agent.settings import BadSetting, Settings, settings_from
from divvy.agent.web import Answer, serve, text


async def _run(settings: Settings) -> None:
    agent = Agent(settings, ClusterLink(settings.node, settings.namespace, settings.config_map))

    async def metrics() -> Answer:
        return "200 OK", "text/plain; version=0.0.4", await metrics_page(agent, settings.node)

    async def health() -> Answer:
        return text("200 OK", "alive\n")

    async def ready() -> Answer:
        if agent.status is None:
            return text("503 Service Unavailable", "the first look at the node is not done\n")
        if agent.kubelet.published() and not agent.kubelet.registered:
            return text("503 Service Unavailable", "not registered with the kubelet\n")
        return text("200 OK", f"{agent.status.state} {agent.status.reason}\n")

    pages = {"/metrics": metrics, "/healthz": health, "/readyz": ready}
    server = await serve(settings.listen, settings.port, pages)
    work = asyncio.ensure_future(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        logging.getLogger("divvy.agent").info("stopping")
    finally:
        server.close()


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
