"""A node of the lab whose runtime is as the lab describes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.node_runtime.on_node import restore
from tests.running_lab import RunningLab


@pytest.fixture
def restored(lab: RunningLab, tmp_path: Path) -> Iterator[RunningLab]:
    """Restore the node's files before, for a test that was cut short, and after."""
    restore(lab, tmp_path)
    yield lab
    restore(lab, tmp_path)
