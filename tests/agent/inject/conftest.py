"""Fixtures: the hook under the sanitizers, and a container for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.agent.inject.bundle import BUILD, C_SOURCES, SOURCE, Container


@pytest.fixture(scope="module")
def sanitized() -> Path:
    # The hook clears its environment: only a function can tell the sanitizer anything.
    options = f"MORE={C_SOURCES / 'sanitizer.c'}"
    command = ["make", "--silent", "-C", SOURCE, f"BUILD={BUILD}", options, "asan"]
    subprocess.run(command, check=True)
    return BUILD / "asan"


@pytest.fixture
def container(sanitized: Path, tmp_path: Path) -> Container:
    tenant = Container(tmp_path, sanitized / "divvy-hook")
    tenant.make()
    return tenant
