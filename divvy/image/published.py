"""What an image in a registry is for."""

from __future__ import annotations

import json
from typing import Any

from divvy.image.build import inspect


def published_platforms(reference: str) -> tuple[str, ...]:
    """Return the platforms of an image, or of all images of an index; raises BuildFailed."""
    manifest = json.loads(inspect(reference, "--raw"))
    if "manifests" in manifest:
        # Beside images an index may have statements on them, for an unknown platform.
        listed = (entry.get("platform") or {} for entry in manifest["manifests"])
        return tuple(sorted({_name(platform) for platform in listed} - {"unknown/unknown"}))
    return (_name(json.loads(inspect(reference, "--config"))),)


def _name(platform: dict[str, Any]) -> str:
    return f"{platform.get('os', 'unknown')}/{platform.get('architecture', 'unknown')}"
