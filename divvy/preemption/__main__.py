"""Start the controller: ``python -m divvy.preemption``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from divvy.agent.web import Answer, serve_while, text
from divvy.kube.errors import KubeconfigError
from divvy.model.contract import METRICS_PORT
from divvy.preemption.client import Api
from divvy.preemption.controller import Controller

_LISTEN, _PORT = "DIVVY_LISTEN", "DIVVY_PORT"
_DEFAULTS = {_LISTEN: "0.0.0.0", _PORT: str(METRICS_PORT)}


async def _run(namespace: str, listen: str, port: int) -> None:
    api = Api(namespace)
    controller = Controller(api)

    async def health() -> Answer:
        if controller.hanging:
            return text("503 Service Unavailable", "hanging\n")
        return text("200 OK", "alive\n")

    try:
        await serve_while(controller.run(), listen, port, {"/healthz": health})
    finally:
        await api.close()


def main() -> None:
    """Read the settings and run until told to stop."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = {name: os.environ.get(name, default) for name, default in _DEFAULTS.items()}
    try:
        namespace, port = os.environ["NAMESPACE"], int(settings[_PORT])
    except (KeyError, ValueError) as problem:
        sys.exit(f"divvy preemption: NAMESPACE and {_PORT} are needed: {problem}")
    try:
        asyncio.run(_run(namespace, settings[_LISTEN], port))
    except KubeconfigError as problem:
        sys.exit(f"divvy preemption: {problem}")


if __name__ == "__main__":
    main()
