"""The kit's programs: hook, limiter, workloads, what measures the limiter, the simulated driver."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from conformance.image import compile_workloads
from divvy.image.build import compile_hook, compile_limiter
from lab.cluster import simulated_driver
from lab.cluster.paths import LAB, REPOSITORY
from lab.kit.pack.python import lay_launched

# The static program that Debian's libc-bin has; on Ubuntu /sbin/ldconfig is a script around it.
_LDCONFIGS = (Path("/sbin/ldconfig.real"), Path("/sbin/ldconfig"))
_WORKLOADS = REPOSITORY / "conformance/workloads"
_MEASURING = {
    "race": (REPOSITORY / "tests/limiter/race.c",),
    "driver-calls": (LAB / "benchmarks/driver_calls.c",),
}


def lay_programs(folder: Path, libraries: str) -> list[Path]:
    """Build everything below ``folder``; return what needs libraries beside it.

    ``libraries`` is the way from a folder of programs to the kit's libraries.
    """
    with tempfile.TemporaryDirectory(prefix="divvy-kit-") as temporary:
        scratch = Path(temporary)
        workloads = folder / "workloads"
        workloads.mkdir(parents=True)
        compile_workloads(scratch / "workloads")
        for name, sources in _MEASURING.items():
            _compile(scratch / name, *sources)
        for program in (
            *sorted(path for path in (scratch / "workloads").iterdir() if path.is_file()),
            *(scratch / name for name in _MEASURING),
        ):
            lay_launched(program, workloads, libraries)
        shutil.copy(_WORKLOADS / "train.py", workloads)
        shutil.copy(compile_hook(scratch / "hook"), folder / "divvy-hook")
        limiter = compile_limiter(scratch / "limiter")
        (folder / "limiter").mkdir()
        for library in limiter.glob("*.so.1"):
            shutil.copy(library, folder / "limiter")
    shutil.copy(next(path for path in _LDCONFIGS if path.exists()), folder / "ldconfig")
    simulated = folder / "simulator"
    simulated.mkdir()
    built = simulated_driver.build()
    for name in (*simulated_driver.BUILT_LIBRARIES, *simulated_driver.PROGRAMS):
        shutil.copy(built / name, simulated)
    _static_daemon(simulated)
    of_driver = (simulated / name for name in simulated_driver.BUILT_LIBRARIES)
    return [*(workloads / "real").iterdir(), *of_driver]


def _compile(program: Path, *sources: Path) -> None:
    """Compile a program; what it embeds is beside its first source."""
    command = ["cc", "-std=gnu11", "-O2", f"-I{_WORKLOADS}", "-o", str(program), *map(str, sources)]
    subprocess.run([*command, "-ldl", "-lpthread"], cwd=sources[0].parent, check=True)


def _static_daemon(folder: Path) -> None:
    """Replace the daemon by a static one: it is started by its own path, with no loader of ours."""
    with tempfile.TemporaryDirectory(prefix="divvy-kit-") as scratch:
        build = f"BUILD={scratch}"
        command = ["make", "--silent", "-C", str(simulated_driver.SOURCE), build, "LDFLAGS=-static"]
        subprocess.run([*command, f"{scratch}/divvy-simd"], check=True)
        shutil.copy(Path(scratch) / "divvy-simd", folder)
