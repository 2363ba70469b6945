"""Start the template maker: ``python -m divvy.claim_templates``."""

from __future__ import annotations

import asyncio
import logging
import os
import sys

from divvy.agent.web import Answer, serve_while, text
from divvy.claim_templates.client import Api
from divvy.claim_templates.maker import Maker
from divvy.claim_templates.metrics import metrics_page
from divvy.kube.errors import KubeconfigError
from divvy.model.api_names import METRICS_PORT

_LISTEN, _PORT = "DIVVY_LISTEN", "DIVVY_PORT"
_UNUSED, _WATCH = "DIVVY_UNUSED_SECONDS", "DIVVY_WATCH_SECONDS"
_DEFAULTS = {_LISTEN: "0.0.0.0", _PORT: str(METRICS_PORT), _UNUSED: "600", _WATCH: "240"}
_UNAVAILABLE = "503 Service Unavailable"


async def _run(listen: str, port: int, unused_seconds: float, watch_seconds: float) -> None:
    api = Api(watch_seconds)
    maker = Maker(api, unused_seconds)

    async def health() -> Answer:
        return text(_UNAVAILABLE, "hanging\n") if maker.hanging else text("200 OK", "alive\n")

    async def ready() -> Answer:
        if maker.ready:
            return text("200 OK", "ready\n")
        return text(_UNAVAILABLE, "pods, templates and slices are not all known\n")

    async def metrics() -> Answer:
        return "200 OK", "text/plain; version=0.0.4", metrics_page(maker)

    pages = {"/healthz": health, "/readyz": ready, "/metrics": metrics}
    try:
        await serve_while(maker.run(), listen, port, pages)
    finally:
        await api.close()


def main() -> None:
    """Read the settings and run until told to stop."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    settings = {name: os.environ.get(name, default) for name, default in _DEFAULTS.items()}
    try:
        numbers = int(settings[_PORT]), float(settings[_UNUSED]), float(settings[_WATCH])
    except ValueError as problem:
        sys.exit(f"divvy claim templates: {', '.join(list(_DEFAULTS)[1:])}: {problem}")
    try:
        asyncio.run(_run(settings[_LISTEN], *numbers))
    except KubeconfigError as problem:
        sys.exit(f"divvy claim templates: {problem}")


if __name__ == "__main__":
    main()
