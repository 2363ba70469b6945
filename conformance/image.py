"""Build and push the image with the workloads."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from plugin_image.build import push_context

_WORKLOADS = Path(__file__).resolve().parent / "workloads"
_PROGRAMS = ("cuda-vector-add", "gpu-burn", "mem-hog")


def build_and_push(registry: str, base: str) -> str:
    """Compile the workloads, build their image, push it; return the reference by digest."""
    subprocess.run(["make", "--silent", "-C", str(_WORKLOADS)], check=True)
    with tempfile.TemporaryDirectory(prefix="divvy-workloads-") as scratch:
        context = Path(scratch)
        shutil.copy(_WORKLOADS / "Containerfile", context)
        (context / "bin").mkdir()
        for name in _PROGRAMS:
            shutil.copy(_WORKLOADS / "build" / name, context / "bin" / name)
        return push_context(context, registry, "divvy/workloads", base)


if __name__ == "__main__":
    print(build_and_push(sys.argv[1], sys.argv[2]))
