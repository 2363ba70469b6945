"""The platforms of an image in a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from divvy.image.build import BuildFailed, inspect

# Beside images an index may have statements on them, for an unknown platform.
_STATEMENT = "unknown/unknown"


def published_platforms(reference: str) -> tuple[str, ...]:
    """Return the platforms of an image, or of all images of an index; raises BuildFailed.

    An index may leave out for what one of its images is: then it is not known.
    """
    try:
        platforms = {*_platforms(reference)} - {_STATEMENT}
    except (ValueError, KeyError, TypeError, AttributeError):
        platforms = set()
    if not platforms:
        raise BuildFailed(f"the registry does not say which platforms {reference} is for")
    return tuple(sorted(platforms))


def _platforms(reference: str) -> Iterator[str]:
    manifest = _inspected(reference, "--raw")
    if "manifests" in manifest:
        for entry in manifest["manifests"]:
            yield _name(entry["platform"])
    else:
        yield _name(_inspected(reference, "--config"))


def _inspected(reference: str, option: str) -> dict[str, Any]:
    answer = json.loads(inspect(reference, option))
    if not isinstance(answer, dict):
        raise TypeError(f"{reference}: {answer!r} is not a table")
    return answer


def _name(platform: dict[str, Any]) -> str:
    name = f"{platform['os']}/{platform['architecture']}"
    if "/" in (name[0], name[-1]):
        raise ValueError(f"{platform!r} names no platform")
    return name
