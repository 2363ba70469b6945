"""A stack without its claims: what the device plugin alone serves."""

from __future__ import annotations

from typing import Any


def without_claims(cluster: dict[str, Any]) -> dict[str, Any]:
    """Return a `divvy:cluster` without profiles of claims and the pools that follow them."""
    profiles = {
        name: profile for name, profile in cluster["profiles"].items() if "claims" not in profile
    }
    pools = {name: pool for name, pool in cluster["pools"].items() if pool["profile"] in profiles}
    return {**cluster, "profiles": profiles, "pools": pools}
