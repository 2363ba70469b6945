"""The unpacked hardware kit: programs for a host without compiler and container runtime."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


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
