"""Fixtures for the agent's tests."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Give a folder with a short path: a Unix socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="divvy-") as folder:
        yield Path(folder)
