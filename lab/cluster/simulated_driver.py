"""Install the simulated driver below a driver root and start its daemon."""

import os
import stat
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from divvy.model.gpu_models import GpuModel
from lab.cluster.errors import DriverInstallationFailed
from lab.cluster.flat_file import driver_description
from lab.cluster.paths import LAB
from lab.cluster.turns import turn_at

SOURCE = LAB / "simulator"
BUILT = SOURCE / "build"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
_MPS = "nvidia-cuda-mps-control"
PROGRAMS = ("nvidia-smi", _MPS, "divvy-sim", "divvy-simd")
# What `build` makes of libraries: NVML twice, since driver 615 has functions that others lack.
BUILT_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libnvidia-ml-615.so")
_MEMORY_LIMITS_SINCE = 615
_STAMP = b"divvy-driver-version:"
_STAMP_LENGTH = 64
_GPU_MAJOR = 195
_LINKS = {
    "libnvidia-ml.so": ("libnvidia-ml.so.1",),
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
}


def build() -> Path:
    """Build what is out of date and return the folder with libraries and programs."""
    command = ["make", "--silent", f"--jobs={os.cpu_count()}", "-C", str(SOURCE), "all"]
    # Two that build the same tree at once would link what the other is still writing.
    with turn_at(SOURCE / "Makefile"):
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        raise DriverInstallationFailed(f"building {SOURCE} failed:\n{completed.stderr.strip()}")
    return BUILT


def install_simulated_driver(
    root: Path,
    node: str,
    gpus: Sequence[GpuModel],
    driver_version: str,
    *,
    persist: Path | None = None,
    binaries: Path | None = None,
    further_versions: Sequence[str] = (),
) -> None:
    """Install the driver for `gpus` below `root` and start its daemon in this PID namespace.

    ``persist`` is a file that keeps the MIG modes that outlive the driver. Further
    versions lie beside the loaded one, for `divvy-sim driver <version>`. Without the
    right to make device nodes, plain files stand for them.
    """
    built = build() if binaries is None else binaries
    for version in (driver_version, *further_versions):
        _libraries(built, root, version)
    _links(root, driver_version)
    _programs(built, root, driver_version)
    _nodes(root, len(gpus))
    description = root / "etc/divvy-simd.conf"
    description.parent.mkdir(exist_ok=True)
    description.write_text(driver_description(node, driver_version, gpus), encoding="utf-8")
    command = [str(root / "usr/bin/divvy-simd"), "--root", str(root)]
    command += ["--description", str(description)]
    if persist is not None:
        persist.parent.mkdir(parents=True, exist_ok=True)
        command += ["--persist", str(persist)]
    started = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if started.returncode != 0:
        raise DriverInstallationFailed(f"{' '.join(command)}: {started.stderr.strip()}")


def _libraries(built: Path, root: Path, version: str) -> None:
    folder = root / LIBRARIES
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LINKS:
        stamped = _stamp((built / _built_name(name, version)).read_bytes(), version, name)
        target = folder / f"{name}.{version}"
        # A program may have the old file mapped: it keeps that one.
        target.unlink(missing_ok=True)
        target.write_bytes(stamped)
        target.chmod(0o755)


def _built_name(name: str, version: str) -> str:
    if name == "libnvidia-ml.so" and int(version.partition(".")[0]) >= _MEMORY_LIMITS_SINCE:
        return "libnvidia-ml-615.so"
    return name


def _stamp(content: bytes, version: str, name: str) -> bytes:
    at = content.find(_STAMP)
    if at < 0 or content.find(_STAMP, at + 1) >= 0:
        raise DriverInstallationFailed(f"{name} does not have exactly one place for its version")
    stamp = (_STAMP + version.encode()).ljust(_STAMP_LENGTH, b"\0")
    if len(stamp) > _STAMP_LENGTH:
        raise DriverInstallationFailed(f"driver version {version} is too long")
    return content[:at] + stamp + content[at + _STAMP_LENGTH :]


def _links(root: Path, version: str) -> None:
    for name, links in _LINKS.items():
        for link in links:
            place = root / LIBRARIES / link
            place.unlink(missing_ok=True)
            place.symlink_to(f"{name}.{version}" if link != name else f"{name}.1")


def _programs(built: Path, root: Path, version: str) -> None:
    folder = root / "usr/bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        place = folder / name
        content = (built / name).read_bytes()
        # An MPS server computes: the driver takes it only of its own version, as a library.
        place.unlink(missing_ok=True)
        place.write_bytes(_stamp(content, version, name) if name == _MPS else content)
        place.chmod(0o755)


def _nodes(root: Path, gpus: int) -> None:
    """Make the device nodes; no kernel driver is behind them, so opening one gives ENXIO."""
    uvm, caps = _free_majors(2)
    devices = root / "dev"
    (devices / "nvidia-caps").mkdir(parents=True, exist_ok=True)
    nodes = [(f"nvidia{minor}", _GPU_MAJOR, minor, 0o666) for minor in range(gpus)]
    nodes += [("nvidiactl", _GPU_MAJOR, 255, 0o666)]
    nodes += [("nvidia-uvm", uvm, 0, 0o666), ("nvidia-uvm-tools", uvm, 1, 0o666)]
    nodes += [
        ("nvidia-caps/nvidia-cap1", caps, 1, 0o400),
        ("nvidia-caps/nvidia-cap2", caps, 2, 0o444),
    ]
    for name, major, minor, mode in nodes:
        _node(devices / name, os.makedev(major, minor), mode)
    (root / "proc").mkdir(exist_ok=True)
    majors = {"nvidia": _GPU_MAJOR, "nvidia-uvm": uvm, "nvidia-caps": caps}
    table = majors_table(Path("/proc/devices").read_text(encoding="ascii"), majors)
    (root / "proc/devices").write_text(table, encoding="ascii")


def majors_table(machine: str, majors: Mapping[str, int]) -> str:
    """Return this machine's /proc/devices with the driver's character devices."""
    lines = machine.splitlines()
    at = lines.index("Character devices:") + 1
    others = [line for line in lines[at:] if not majors.keys() & set(line.split())]
    own = [f"{major:3d} {name}" for name, major in majors.items()]
    return "\n".join([*lines[:at], *own, *others]) + "\n"


def _node(place: Path, device: int, mode: int) -> None:
    place.unlink(missing_ok=True)
    try:
        os.mknod(place, stat.S_IFCHR | mode, device)
    except PermissionError:
        place.touch()
    place.chmod(mode)


def _free_majors(count: int) -> tuple[int, ...]:
    """Return dynamic major numbers that no driver of this machine has."""
    lines = Path("/proc/devices").read_text(encoding="ascii").splitlines()
    used_majors = {
        int(line.split()[0]) for line in lines if line.split() and line.split()[0].isdigit()
    }
    return tuple(number for number in range(511, 383, -1) if number not in used_majors)[:count]
