"""The machine under test: its driver, its GPUs and who uses them; looked at by nvidia-smi alone."""

from __future__ import annotations

import csv
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from divvy.agent.driver_libraries import library_folder

_ROOTS = ("/", "/run/nvidia/driver")
# Where drivers are that no driver root has: containers and nodes of clouds, WSL.
_OTHER_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/lib/wsl/lib",
)
_SMI_SECONDS = 60
_QUERY = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "memory.used",
    "mig.mode.current",
    "compute_mode",
)
# In a container, nvidia-smi names no process of another one. A driver takes less for itself.
_UNNAMED_USE_MIB = 2048
# What nvidia-smi calls the field that it does not know of a GPU.
NOT_THERE = ("[N/A]", "N/A", "[Not Supported]")


class NoDriver(Exception):
    """No driver that answers; the text says what was looked for, or what it said."""


@dataclass(frozen=True)
class Gpu:
    """One GPU; ``users`` are the processes on it, ``mig`` is Enabled, Disabled or N/A."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    mig: str
    compute_mode: str
    users: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """Where the driver is and what it shows.

    ``root`` is the driver root, ``folder`` has its libraries; ``kernel`` is Linux's version.
    """

    root: str
    folder: str
    simulated: bool
    driver: str
    gpus: tuple[Gpu, ...]
    kernel: str
    system: str

    @property
    def smi(self) -> str:
        """Return the path of nvidia-smi."""
        return str(Path(self.root) / "usr/bin/nvidia-smi")

    @property
    def idle(self) -> Gpu | None:
        """Return the first GPU that nobody uses and that is not cut, None where there is none."""
        return next((gpu for gpu in self.gpus if not gpu.users and gpu.mig != "Enabled"), None)

    @property
    def environment(self) -> dict[str, str]:
        """Return what programs need to find the driver's libraries."""
        inherited = {name: text for name, text in os.environ.items() if name != "LD_LIBRARY_PATH"}
        return inherited if self.root == "/" else {**inherited, "LD_LIBRARY_PATH": self.folder}

    def nvidia_smi(self, *arguments: str) -> str:
        """Return what nvidia-smi prints; raises NoDriver where it fails."""
        return _run([self.smi, *arguments], self.environment)

    def describe(self) -> dict[str, Any]:
        """Return what a record says of the machine: nothing that tells whose it is."""
        products = [gpu.product for gpu in self.gpus]
        return {
            "simulated": self.simulated,
            "driver": self.driver,
            "gpus": [f"{products.count(name)} × {name}" for name in dict.fromkeys(products)],
            "memoryMiB": sorted({gpu.memory_mib for gpu in self.gpus}),
            "kernel": self.kernel,
            "system": self.system,
            "processors": os.cpu_count(),
        }


def machine_from(raw: Mapping[str, Any]) -> Machine:
    """Read a machine from plain values."""
    gpus = tuple(Gpu(**{**gpu, "users": tuple(gpu["users"])}) for gpu in raw["gpus"])
    return Machine(**{**raw, "gpus": gpus})


def look(root: str | None, scratch: Path) -> Machine:
    """Look at this machine; raises NoDriver. ``scratch`` may take a driver root made of links."""
    for candidate in (root,) if root else _ROOTS:
        folder = library_folder(Path(candidate))
        if folder is not None:
            return _described(candidate, folder)
    folders = [] if root else [path for path in _other_folders() if _has_nvml(path)]
    if folders:
        made = _linked_root(folders[0], scratch)
        return _described(str(made), made / "usr/lib/x86_64-linux-gnu")
    places = root or f"{' or '.join(_ROOTS)}, nor in {', '.join(_OTHER_FOLDERS)}"
    raise NoDriver(f"no NVIDIA driver: libnvidia-ml.so.1 is not below {places}")


def _other_folders() -> Iterable[Path]:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    return map(Path, (*_OTHER_FOLDERS, *filter(None, folders)))


def _has_nvml(folder: Path) -> bool:
    return (folder / "libnvidia-ml.so.1").exists()


def _linked_root(folder: Path, scratch: Path) -> Path:
    """Make a driver root of a driver that lies elsewhere: links to its parts."""
    root = scratch / "driver-root"
    for part in ("usr/lib", "usr/bin"):
        (root / part).mkdir(parents=True, exist_ok=True)
    places = {"usr/lib/x86_64-linux-gnu": folder, "dev": Path("/dev"), "proc": Path("/proc")}
    program = shutil.which("nvidia-smi", path=f"{folder.parent / 'bin'}:{os.environ['PATH']}")
    if program is not None:
        places["usr/bin/nvidia-smi"] = Path(program)
    for name, target in places.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)
    return root


def _described(root: str, folder: Path) -> Machine:
    library = (folder / "libnvidia-ml.so.1").read_bytes()
    bare = Machine(root, str(folder), b"divvySimulated" in library, "", (), _kernel(), _system())
    if not Path(bare.smi).exists():
        raise NoDriver(f"{folder} has a driver's libraries, but {bare.smi} is missing")
    table = bare.nvidia_smi(f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits")
    users = _users(bare)
    gpus = []
    for row in csv.reader(table.splitlines(), skipinitialspace=True):
        if len(row) != len(_QUERY):
            continue
        values = dict(zip(_QUERY, row, strict=True))
        mig = "N/A" if values["mig.mode.current"] in NOT_THERE else values["mig.mode.current"]
        gpus.append(
            Gpu(
                int(values["index"]),
                values["uuid"],
                values["name"],
                int(values["memory.total"]) if values["memory.total"].isdigit() else 0,
                mig,
                values["compute_mode"],
                tuple(users.get(values["uuid"], ())) or _unnamed(values["memory.used"]),
            )
        )
    if not gpus:
        raise NoDriver(f"nvidia-smi lists no GPU: {table.strip()[:200] or 'it prints nothing'}")
    version = bare.nvidia_smi("--query-gpu=driver_version", "--format=csv,noheader").split()[0]
    return machine_from({**asdict(bare), "driver": version, "gpus": [asdict(g) for g in gpus]})


def _users(machine: Machine) -> dict[str, list[str]]:
    """Return the processes of each GPU: those that compute, by UUID."""
    table = machine.nvidia_smi(
        "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader"
    )
    users: dict[str, list[str]] = {}
    for uuid, pid, name in re.findall(r"^(GPU-\S+), (\d+), (.*)$", table, re.MULTILINE):
        users.setdefault(uuid, []).append(f"process {pid} ({Path(name.strip()).name})")
    return users


def _unnamed(used: str) -> tuple[str, ...]:
    if used.isdigit() and int(used) > _UNNAMED_USE_MIB:
        return (f"something that nvidia-smi does not name, with {used} MiB",)
    return ()


def _kernel() -> str:
    """Return Linux's version, without what its builder has added."""
    return platform.release().partition("-")[0]


def _system() -> str:
    """Return the distribution's name, "" where it does not say."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return ""
    return release.get("PRETTY_NAME", release.get("NAME", ""))


def _run(command: list[str], environment: Mapping[str, str]) -> str:
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SMI_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoDriver(f"{name} did not answer within {_SMI_SECONDS} s") from None
    except OSError as error:
        raise NoDriver(f"{name} cannot be run: {error.strerror}") from None
    if done.returncode:
        last_words = (done.stdout + done.stderr).strip().splitlines()[-1:] or ["nothing"]
        raise NoDriver(f"{name} exited with {done.returncode}: {last_words[0]}")
    return done.stdout


def main() -> None:
    """Print the machine as JSON, for a process that must not hang with the driver."""
    root, scratch = sys.argv[1:]
    try:
        machine = look(root or None, Path(scratch))
    except NoDriver as problem:
        sys.exit(str(problem))
    print(json.dumps(asdict(machine)))


if __name__ == "__main__":
    main()
