"""Fixtures for the agent's tests."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.tenants import NODE
from tests.deployment import Deployment


@pytest.fixture
def sockets() -> Iterator[Path]:
    """Give a folder with a short path: a Unix socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="divvy-") as folder:
        yield Path(folder)


@pytest.fixture
def original(deployed: Deployment) -> Iterator[None]:
    """Leave the lab's stack as it was."""
    before = json.dumps(deployed.cluster)
    yield
    if json.dumps(deployed.cluster) != before:
        deployed.cluster = json.loads(before)
        deployed.up()
    deployed.until(lambda: deployed.status(NODE).get("state") == "Ready", 60)
