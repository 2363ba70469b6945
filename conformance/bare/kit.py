"""The unpacked hardware kit: programs for a host without compiler and container runtime."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.bare.findings import Findings
from conformance.bare.host import BareHost


@dataclass(frozen=True)
class Kit:
    """Where the kit's parts are."""

    folder: Path

    @property
    def programs(self) -> Path:
        """Return the folder of hook, limiter, workloads, and the simulated driver."""
        return self.folder / "programs"

    @property
    def workloads(self) -> Path:
        """Return the folder of the workloads, each to be run as it is."""
        return self.programs / "workloads"

    @property
    def python(self) -> Path:
        """Return the folder of a Python that needs nothing of the machine."""
        return self.folder / "python"

    @property
    def revision(self) -> str:
        """Return the revision that it was made from."""
        return str(json.loads((self.folder / "kit.json").read_text())["revision"])


AGENT_SCENE = pytest.StashKey[
    Callable[[BareHost, Kit, Path, str | None, Findings], Coroutine[None, None, None]]
]()
"""Plays the agent on this host, with a GPU on which a program may break; the kit's plugin sets it.

The kit has the stand-ins for kubelet and API server that this takes; an installed Divvy has not.
"""
