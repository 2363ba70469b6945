"""What a run tells its steps, in a file that each of them reads."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from divvy.agent.settings import Settings, settings_from
from hardware_kit.machine import Machine, machine_from

NODE = "hardware-kit"
# A socket's path has room for 107 bytes, which a folder for temporary files may use up.
SOCKETS = Path("/run")
# What a run makes outside its scratch folder begins so, and has a file with its process.
FOLDERS, OWNER = "divvy-kit.", "owner"


@dataclass(frozen=True)
class KitSettings:
    """Where the kit's programs are, where a step may write, and what it runs on.

    ``short``: figures from less time, for rehearsals. ``gpu`` is the UUID of the GPU that steps may
    use alone, "" where there is none. ``state`` outlives the run: what has to be put back. The
    driver's recorded answers go to the file ``answers``.
    """

    kit: Path
    scratch: Path
    state: Path
    machine: Machine
    gpu: str
    short: bool
    answers: Path

    @property
    def programs(self) -> Path:
        """Return the folder of the kit's programs."""
        return self.kit / "programs"

    @property
    def workloads(self) -> Path:
        """Return the folder of the workloads, each to be run as it is."""
        return self.programs / "workloads"

    @property
    def root(self) -> Path:
        """Return the driver root."""
        return Path(self.machine.root)

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment of an agent that writes below ``folder`` alone."""
        root = self.machine.root
        return {
            "NODE_NAME": NODE,
            "NAMESPACE": "divvy-system",
            "DIVVY_DRIVER_ROOT": root,
            "DIVVY_HOST_DRIVER_ROOT": root,
            "DIVVY_CDI_FOLDER": str(folder / "cdi"),
            "DIVVY_STATE_FOLDER": str(folder / "state"),
            "DIVVY_SHARE_FOLDER": str(folder / "tenants"),
            "DIVVY_DEVICE_FOLDER": "/dev",
            "DIVVY_CONTAINERD_FOLDER": str(folder / "containerd"),
            "DIVVY_HOOK": str(self.programs / "divvy-hook"),
            "DIVVY_LDCONFIG": str(self.programs / "ldconfig"),
            "DIVVY_LIMITER": str(self.programs / "limiter"),
        }

    def agent_settings(self, folder: Path) -> Settings:
        """Return the same as the agent's settings."""
        return settings_from(self.environment(folder))

    def write(self, path: Path) -> None:
        """Write it for the steps; raises OSError."""
        path.write_text(json.dumps(asdict(self), default=str))


def read_settings(path: Path) -> KitSettings:
    """Read what ``write`` wrote."""
    raw = json.loads(path.read_text())
    folders = {name: Path(raw[name]) for name in ("kit", "scratch", "state", "answers")}
    return KitSettings(**{**raw, **folders, "machine": machine_from(raw["machine"])})
