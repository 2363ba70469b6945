"""The agent's injection on this machine: hook, limiter, CDI specification in a scratch folder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.inject.injection import Injection
from divvy.agent.nvml.discovery import discover
from divvy.model.contract import CDI_FILE, limited_cdi_file
from hardware_kit.settings import KitSettings

# A runtime with CDI; the specification is the same for all of them.
_RUNTIME = "containerd://2.1.0"


@dataclass(frozen=True)
class Injected:
    """What was installed and written; ``state`` has hook, limiter and the files of shares."""

    snapshot: Snapshot
    injection: Injection
    state: Path
    cdi: Path

    @property
    def spec(self) -> dict[str, Any]:
        """Return the specification of containers that have a device without a limit."""
        return dict(json.loads((self.cdi / CDI_FILE).read_text()))

    @property
    def limited(self) -> dict[str, Any]:
        """Return that of containers with the limiter in front of the driver."""
        name = limited_cdi_file(self.injection.limiter)
        return dict(json.loads((self.cdi / name).read_text()))


def inject(settings: KitSettings) -> Injected:
    """Install and describe below the scratch folder; raises InjectionProblem, DriverProblem."""
    paths = settings.agent_settings(settings.scratch)
    paths.state_folder.mkdir(parents=True, exist_ok=True)
    snapshot = asyncio.run(discover(settings.root))
    injection = Injection(paths)
    injection.install()
    injection.renew(snapshot, _RUNTIME)
    return Injected(snapshot, injection, paths.state_folder, paths.cdi_folder)
