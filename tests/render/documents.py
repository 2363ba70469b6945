"""What is rendered for a cluster value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model import parse_document
from divvy.render.objects.cluster import objects


def objects_of(value: Mapping[str, Any], image: str) -> list[dict[str, Any]]:
    """Return the objects of a cluster value."""
    return objects(parse_document(value), image)
