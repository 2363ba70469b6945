"""The parts that are built here: Go tools, images, the simulated driver."""

import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from lab.cluster import pulumi
from lab.cluster.images import Image
from lab.cluster.images.build import ImageBuildFailed
from lab.cluster.paths import LAB
from lab.cluster.tools import HELM, KUBERNETES, Tool, ToolBuildFailed
from lab.cluster.turns import turn_at
from lab.setup.python import ENVIRONMENT
from lab.setup.steps import StepFailed


def build_tool(tool: Tool) -> Callable[[], str]:
    """Return the step that builds a Go tool."""

    def ensure() -> str:
        try:
            return "built" if tool.build() else ""
        except ToolBuildFailed as error:
            raise StepFailed(str(error), _remedy(error)) from error

    return ensure


def build_image(image: Image) -> Callable[[], str]:
    """Return the step that builds one of the lab's own images."""

    def ensure() -> str:
        try:
            return "built" if image.build() else ""
        except ImageBuildFailed as error:
            raise StepFailed(str(error), _remedy(error)) from error

    return ensure


def _remedy(error: Exception) -> str:
    if "signal: killed" in str(error):
        return "Was it the kernel, for want of memory? Add memory or swap."
    return "Is the network there? Both the Go proxy and the Debian mirror are needed once."


def build_simulator() -> str:
    """Build the simulated driver."""
    directory = LAB / "simulator"
    if not (directory / "Makefile").is_file():
        return "none yet"
    make = ["nice", "make", "--no-print-directory", f"--jobs={os.cpu_count()}"]
    make += ["-C", str(directory)]
    with turn_at(directory / "Makefile"):
        if subprocess.run([*make, "--question"], capture_output=True, check=False).returncode == 0:
            return ""
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    if done.returncode:
        words = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
        raise StepFailed(
            f"make -C lab/simulator failed:\n{words}", "Fix what the compiler reports."
        )
    return "built"


def link_commands(tools: Sequence[Tool]) -> Callable[[], str]:
    """Return the step that puts what people type of these tools beside divvy in .venv/bin."""

    def ensure() -> str:
        linked = []
        for command, tool in (("kubectl", KUBERNETES), ("helm", HELM)):
            link, target = ENVIRONMENT / "bin" / command, tool.bin / command
            if tool in tools and not (link.is_symlink() and link.readlink() == target):
                link.unlink(missing_ok=True)
                link.symlink_to(target)
                linked.append(command)
        return f"linked {', '.join(linked)}" if linked else ""

    return ensure


def install_pulumi() -> str:
    """Put Pulumi beside divvy in .venv/bin."""
    folder = ENVIRONMENT / "bin"
    if pulumi.is_installed(folder):
        return ""
    pulumi.install_pulumi(folder)
    return "installed"


def cache_size(directory: Path) -> str:
    """Return how much a directory holds, as du says it."""
    done = subprocess.run(["du", "-sh", directory], capture_output=True, text=True, check=False)
    return done.stdout.split()[0] if done.stdout else "0"
