"""Fixtures for the clients of the API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.answering_server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()
