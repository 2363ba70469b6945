"""Pulumi as a folder of commands: its CLI, its host for Python, its provider for Kubernetes.

All are built from their modules (tools/). The hosts are an older release, because later ones are
not published as modules: the one for Python runs the executor of the SDK's own release.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from lab.cluster.tools import PULUMI, PULUMI_LANGUAGES, PULUMI_RESOURCE_KUBERNETES, PULUMI_TOOLS

# From the SDK's module: the executor of the host for Python, and the provider of dynamic resources.
_OF_SDK = (
    "python/cmd/pulumi-language-python-exec",
    "python/dist/pulumi-resource-pulumi-python",
)


def install_pulumi(folder: Path) -> None:
    """Put the commands that a Python program needs into a folder, and build them if need be."""
    for tool in PULUMI_TOOLS:
        tool.build()
    for target in _linked():
        link = folder / target.name
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    # The host looks for the executor beside itself, whatever link it was started by.
    for source in (PULUMI_LANGUAGES.bin / "pulumi-language-python", *map(_of_sdk, _OF_SDK)):
        copy = folder / source.name
        copy.unlink(missing_ok=True)  # one that runs cannot be written to
        shutil.copy(source, copy)
        copy.chmod(0o755)


def is_installed(folder: Path) -> bool:
    """Return whether ``install_pulumi`` has put these very commands into a folder."""
    links = all((folder / target.name).resolve() == target for target in _linked())
    return links and all((folder / Path(name).name).is_file() for name in _OF_SDK)


def _linked() -> tuple[Path, ...]:
    return (
        PULUMI.bin / "pulumi",
        PULUMI_RESOURCE_KUBERNETES.bin / "pulumi-resource-kubernetes",
    )


def _of_sdk(name: str) -> Path:
    """Return a file of the SDK's module that Pulumi is built with."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/pulumi/pulumi/sdk/v3"]
    listed = subprocess.run(command, cwd=PULUMI.module, capture_output=True, text=True, check=True)
    return Path(listed.stdout.strip()) / name
