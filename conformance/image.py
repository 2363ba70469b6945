"""Build and push the image with the workloads: our programs, and tinygrad to train with."""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from divvy.image.build import BUILD_TOOLS, BuildFailed, make, push_context, require_tools
from divvy.model import PluginImage

WORKLOADS = Path(__file__).resolve().parent / "workloads"
_FAILED = "the workloads' image cannot be built and pushed"

# Of tinygrad's bindings to drivers, which are most of it, those of CUDA and what they import.
_BINDINGS = "tinygrad/runtime/autogen/"
_NEEDED = {f"{_BINDINGS}{name}.py" for name in ("__init__", "cuda", "nvrtc", "nvjitlink", "libc")}


def compile_workloads(folder: Path) -> None:
    """Build the workloads' programs into a folder; raises BuildFailed."""
    require_tools("the workloads", "make", "cc")
    try:
        make(WORKLOADS, folder)
    except BuildFailed as problem:
        raise BuildFailed(f"the workloads do not compile: {problem}") from None


def lay_tinygrad(folder: Path) -> None:
    """Copy what training needs of the installed tinygrad, which requirements/dev.txt pins."""
    try:
        installed = distribution("tinygrad")
    except PackageNotFoundError:
        raise BuildFailed("tinygrad is missing: install divvy with [verify]") from None
    for file in installed.files or ():
        parts = file.as_posix()
        is_licence = file.name.startswith("LICENSE")
        is_source = parts.startswith("tinygrad/") and file.suffix == ".py"
        is_needed = not parts.startswith(_BINDINGS) or parts in _NEEDED
        if is_licence or (is_source and is_needed):
            target = folder / parts
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), target)


def build_as(image: PluginImage | None) -> str | None:
    """Build where the stack file says that the agent's image is built, None if it does not.

    Raises BuildFailed.
    """
    if image is None or image.registry is None or image.base is None:
        return None
    try:
        return build_and_push(image.registry, image.base, insecure=image.insecure)
    except (BuildFailed, OSError) as problem:
        raise BuildFailed(f"{_FAILED}: {problem}") from None


def build_and_push(registry: str, base: str, *, insecure: bool = False) -> str:
    """Compile the workloads, build their image, push it; return the reference by digest."""
    require_tools("the workloads' image", *BUILD_TOOLS)
    with tempfile.TemporaryDirectory(prefix="divvy-workloads-") as scratch:
        context = Path(scratch)
        shutil.copy(WORKLOADS / "Containerfile", context)
        compile_workloads(context / "bin")
        shutil.copy(WORKLOADS / "train.py", context / "bin" / "train")
        lay_tinygrad(context / "training")
        return push_context(context, registry, "divvy/workloads", base, insecure=insecure)


if __name__ == "__main__":
    try:
        print(build_and_push(sys.argv[1], sys.argv[2], insecure="--insecure" in sys.argv[3:]))
    except (BuildFailed, OSError) as problem:
        sys.exit(f"{_FAILED}: {problem}")
