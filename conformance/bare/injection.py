"""The agent's injection on this host: hook, limiter and CDI specification in a scratch folder."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.bare.container import Container
from conformance.bare.kit import Kit
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.inject.injection import Injection
from divvy.agent.inject.limiter import write_share
from divvy.agent.nvml.discovery import discover
from divvy.agent.settings import settings_from
from divvy.model.api_names import CDI_FILE, limited_cdi_file
from divvy.model.sharing import Compute, DeviceShare, Sharing

NODE = "bare-host"
# A runtime with CDI; the specification is the same for all of them.
_RUNTIME = "containerd://2.1.0"


def agent_environment(kit: Kit, root: Path, folder: Path) -> dict[str, str]:
    """Return the environment of an agent that writes below ``folder`` alone."""
    return {
        "NODE_NAME": NODE,
        "NAMESPACE": "divvy-system",
        "POD_NAME": "divvy-agent",
        "DIVVY_DRIVER_ROOT": str(root),
        "DIVVY_HOST_DRIVER_ROOT": str(root),
        "DIVVY_CDI_FOLDER": str(folder / "cdi"),
        "DIVVY_STATE_FOLDER": str(folder / "state"),
        "DIVVY_SHARE_FOLDER": str(folder / "tenants"),
        "DIVVY_DEVICE_FOLDER": "/dev",
        "DIVVY_CONTAINERD_FOLDER": str(folder / "containerd"),
        "DIVVY_HOOK": str(kit.programs / "divvy-hook"),
        "DIVVY_LDCONFIG": str(kit.programs / "ldconfig"),
        "DIVVY_LIMITER": str(kit.programs / "limiter"),
    }


@dataclass(frozen=True)
class Injected:
    """What was installed and written, and containers that get one GPU by it."""

    kit: Kit
    folder: Path
    gpu: str
    snapshot: Snapshot
    injection: Injection

    @property
    def spec(self) -> dict[str, Any]:
        """Return the specification of containers that have a device without a limit."""
        return self._read(CDI_FILE)

    @property
    def limited(self) -> dict[str, Any]:
        """Return that of containers with the limiter in front of the driver."""
        return self._read(limited_cdi_file(self.injection.limiter))

    def _read(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / "cdi" / name).read_text()))

    def container(self, name: str) -> Container:
        """Make a container that has the GPU without a limit."""
        return self._make(Container(self.kit, self.folder / name, self.spec, self.gpu))

    def tenant(self, name: str, mib: int, weight: int = 0) -> Container:
        """Make one with ``mib`` of the GPU; with a ``weight``, its time is shared by weight."""
        compute: Compute | None = "share" if weight else None
        page = f"{name}-0" if weight else "-"
        sharing = Sharing(memory_mib=mib, action="prevent", compute=compute, weight=weight or 100)
        share = DeviceShare(self.gpu, sharing, page)
        mounts = write_share(self.folder / "state", [f"{self.gpu}::{name}"], [share])
        return self._make(Container(self.kit, self.folder / name, self.limited, self.gpu, mounts))

    def _make(self, container: Container) -> Container:
        container.make()
        return container


def inject(kit: Kit, root: Path, folder: Path, gpu: str) -> Injected:
    """Install and describe below ``folder``; raises InjectionProblem, DriverProblem."""
    settings = settings_from(agent_environment(kit, root, folder))
    settings.state_folder.mkdir(parents=True, exist_ok=True)
    snapshot = asyncio.run(discover(root))
    injection = Injection(settings)
    injection.install()
    injection.renew(snapshot, _RUNTIME)
    return Injected(kit, folder, gpu, snapshot, injection)
