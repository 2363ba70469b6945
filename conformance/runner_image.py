"""Build and push the image that runs the suite in a cluster, as the agent's image is built."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from divvy.bundled_sources import PACKAGE, VERIFY_REQUIREMENTS
from divvy.image.build import (
    BuildFailed,
    build_tools,
    compile_bytecode,
    install_pinned,
    push_context,
    readable_by_all,
    require_tools,
)
from divvy.image.platforms import LINUX_AMD64
from divvy.version_info import NAME, revision, version

_RUNNER = Path(__file__).resolve().parent / "runner"
_FAILED = "the image of the suite cannot be built and pushed"
_PROGRAM = "divvy-verify-job"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "build")


def build_and_push(registry: str, base: str, *, insecure: bool = False) -> str:
    """Build the image, push it; return the reference by digest. Raises BuildFailed."""
    require_tools("the image of the suite", *build_tools([LINUX_AMD64]), "kubectl")
    with tempfile.TemporaryDirectory(prefix="divvy-verify-") as scratch:
        context = Path(scratch)
        lay_out(context)
        return push_context(context, registry, "divvy/verify", base, insecure=insecure)


def lay_out(context: Path) -> None:
    """Lay out everything that the image has, less its base; raises BuildFailed."""
    shutil.copy(_RUNNER / "Containerfile", context)
    (context / "bin").mkdir()
    shutil.copy(_RUNNER / _PROGRAM, context / "bin")
    kubectl = shutil.which("kubectl")
    assert kubectl is not None
    shutil.copy(Path(kubectl).resolve(), context / "bin" / "kubectl")
    site = context / "site"
    install_pinned(VERIFY_REQUIREMENTS, site)
    copy_divvy(site)
    compile_bytecode(site, optimize=0)
    readable_by_all(context)


def copy_divvy(site: Path) -> None:
    """Copy the installed program, which says in the image too what it is."""
    shutil.copytree(PACKAGE, site / "divvy", ignore=_LEFT_OUT)
    (site / "divvy/revision.txt").write_text(revision())
    about = site / f"{NAME.replace('-', '_')}-{version()}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version()}\n", encoding="utf-8"
    )


if __name__ == "__main__":
    try:
        print(build_and_push(sys.argv[1], sys.argv[2], insecure="--insecure" in sys.argv[3:]))
    except (BuildFailed, OSError) as problem:
        sys.exit(f"{_FAILED}: {problem}")
