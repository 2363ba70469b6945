"""Build and push the image with the workloads: our programs, and tinygrad to train with."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from divvy.image.build import BuildFailed, build_tools, make, push_contexts, require_tools
from divvy.image.platforms import DEFAULT_PLATFORMS, named_platforms, platforms_of
from divvy.model import PluginImage

WORKLOADS = Path(__file__).resolve().parent / "workloads"
_FAILED = "the workloads' image cannot be built and pushed"

# Of tinygrad's bindings to drivers, which are most of it, those of CUDA and what they import.
_BINDINGS = "tinygrad/runtime/autogen/"
_NEEDED = {f"{_BINDINGS}{name}.py" for name in ("__init__", "cuda", "nvrtc", "nvjitlink", "libc")}


def compile_workloads(folder: Path, compiler: str = "cc") -> None:
    """Build the workloads' programs into a folder; raises BuildFailed."""
    require_tools("the workloads", "make", compiler)
    try:
        make(WORKLOADS, folder, compiler)
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
        return build_and_push(
            image.registry, image.base, insecure=image.insecure, platforms=image.platforms
        )
    except (BuildFailed, OSError) as problem:
        raise BuildFailed(f"{_FAILED}: {problem}") from None


def build_and_push(
    registry: str,
    base: str,
    *,
    insecure: bool = False,
    platforms: Iterable[str] = DEFAULT_PLATFORMS,
) -> str:
    """Compile the workloads, build their image, push it; return the reference by digest."""
    wanted = platforms_of(platforms)
    require_tools("the workloads' image", *build_tools(wanted))
    with tempfile.TemporaryDirectory(prefix="divvy-workloads-") as scratch:
        contexts = {platform: Path(scratch, platform.architecture) for platform in wanted}
        for platform, context in contexts.items():
            context.mkdir()
            shutil.copy(WORKLOADS / "Containerfile", context)
            compile_workloads(context / "bin", platform.compiler)
            shutil.copy(WORKLOADS / "train.py", context / "bin" / "train")
            lay_tinygrad(context / "training")
        return push_contexts(contexts, registry, "divvy/workloads", base, insecure=insecure)


if __name__ == "__main__":
    try:
        print(
            build_and_push(
                sys.argv[1],
                sys.argv[2],
                insecure="--insecure" in sys.argv[3:],
                platforms=named_platforms(sys.argv[3:]),
            )
        )
    except (BuildFailed, OSError) as problem:
        sys.exit(f"{_FAILED}: {problem}")
