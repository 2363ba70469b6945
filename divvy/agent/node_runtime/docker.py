"""Docker: switch CDI on in daemon.json. A pure transform; not run on our machines."""

from __future__ import annotations

import json


def missing(text: str | None) -> tuple[str, ...]:
    """Return what daemon.json (None: there is none) lacks for CDI."""
    features = {} if not text else json.loads(text).get("features") or {}
    return () if features.get("cdi") is True else ("features.cdi is off",)


def with_cdi(text: str | None) -> str:
    """Return daemon.json with CDI on and every other key as it was."""
    config = {} if not text else json.loads(text)
    config["features"] = {**(config.get("features") or {}), "cdi": True}
    return json.dumps(config, indent=4) + "\n"
