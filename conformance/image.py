"""Build and push the image with the workloads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from plugin_image.build import BuildFailed, push_context

WORKLOADS = Path(__file__).resolve().parent / "workloads"
_PROGRAMS = (
    "cuda-vector-add",
    "gpu-burn",
    "mem-hog",
    "mem-bandwidth",
    "bad-access",
    "open-devices",
    "http-get",
)


def compile_workloads() -> None:
    """Build the workloads' programs in workloads/build."""
    subprocess.run(["make", "--silent", "-C", str(WORKLOADS)], check=True)


def build_and_push(registry: str, base: str, *, insecure: bool = False) -> str:
    """Compile the workloads, build their image, push it; return the reference by digest."""
    compile_workloads()
    with tempfile.TemporaryDirectory(prefix="divvy-workloads-") as scratch:
        context = Path(scratch)
        shutil.copy(WORKLOADS / "Containerfile", context)
        (context / "bin").mkdir()
        for name in _PROGRAMS:
            shutil.copy(WORKLOADS / "build" / name, context / "bin" / name)
        return push_context(context, registry, "divvy/workloads", base, insecure=insecure)


if __name__ == "__main__":
    try:
        print(build_and_push(sys.argv[1], sys.argv[2], insecure="--insecure" in sys.argv[3:]))
    except (BuildFailed, OSError, subprocess.CalledProcessError) as problem:
        sys.exit(f"the workloads' image cannot be built and pushed: {problem}")
