"""Make the kit's folder: ``python -m lab.kit.pack [FOLDER]``."""

from __future__ import annotations

import compileall
import json
import os
import platform
import py_compile
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

from divvy.image.build import BuildFailed, require_tools
from lab.cluster.paths import LAB, REPOSITORY
from lab.kit.pack.packages import lay_packages
from lab.kit.pack.programs import lay_programs
from lab.kit.pack.python import lay_libraries, lay_python

MAX_MIB = 60
_DEFAULT = REPOSITORY / "out/hardware-kit"


def pack(folder: Path) -> int:
    """Make the kit's folder, in place of an earlier one, and return its size in bytes.

    Raises BuildFailed.
    """
    if platform.machine() != "x86_64":
        raise BuildFailed("the hardware kit is made on x86_64, for x86_64")
    require_tools("the hardware kit", "make", "cc", "strip", "ldd")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".hardware-kit-", dir=folder.parent) as scratch:
        staging, payload = Path(scratch) / "made", Path(scratch) / "kit"
        staging.mkdir()
        lay_payload(payload)
        with tarfile.open(staging / "payload.tar.gz", "w:gz", compresslevel=6) as archive:
            archive.add(payload, "kit", filter=_of_root)
        shutil.copy(LAB / "kit/run.sh", staging)
        (staging / "run.sh").chmod(0o755)
        shutil.copy(payload / "kit.json", staging)
        size = size_of(staging)
        if size > MAX_MIB << 20:
            raise BuildFailed(f"the kit has {size >> 20} MiB, {MAX_MIB} are allowed")
        if folder.exists():
            if not (folder / "kit.json").exists():
                raise BuildFailed(f"{folder} exists and is not a kit: it is left alone")
            shutil.rmtree(folder)
        staging.rename(folder)
    return size


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _of_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def lay_payload(folder: Path) -> None:
    """Lay out what the kit unpacks on the machine under test; raises BuildFailed, OSError."""
    site = lay_python(folder / "python")
    lay_packages(site)
    programs = lay_programs(folder / "programs", "../../python/lib")
    objects = [
        *(folder / "python/libexec").iterdir(),
        *(folder / "python").rglob("*.so"),
        *programs,
    ]
    lay_libraries(folder / "python/lib", objects)
    _strip(folder)
    compileall.compile_dir(
        folder / "python/lib",
        quiet=2,
        workers=os.cpu_count() or 1,
        stripdir=str(folder),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    about = {"kind": "DivvyHardwareKit", "revision": _revision(), "made": _today()}
    (folder / "kit.json").write_text(json.dumps(about, indent=1) + "\n")


def _strip(folder: Path) -> None:
    """Remove symbols that no loader needs; the simulated driver's version stamp is no symbol."""
    objects = [path for path in folder.rglob("*") if path.is_file() and _is_object(path)]
    for path in objects:
        path.chmod(0o755)
    subprocess.run(["strip", "--strip-unneeded", *objects], check=True)


def _is_object(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _revision() -> str:
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def _today() -> str:
    return time.strftime("%Y-%m-%d", time.gmtime())


def main() -> None:
    """Make it and say how large it is."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else _DEFAULT
    try:
        size = pack(folder)
    except (BuildFailed, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"the hardware kit cannot be made: {problem}")
    print(
        f"{folder}: {size / 2**20:.1f} MiB. On a machine with a GPU, as root: {folder.name}/run.sh"
    )


if __name__ == "__main__":
    main()
