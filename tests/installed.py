"""Divvy as its users have it: a built wheel in an empty virtual environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from lab.cluster.paths import REPOSITORY


@dataclass(frozen=True)
class Installed:
    """A virtual environment with Divvy's wheel, and the packages that it depends on."""

    environment: Path

    def run(
        self,
        *command: object,
        folder: Path,
        expect: int | None = 0,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment; nothing leads it to the checkout."""
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        program, *arguments = map(str, command)
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            cwd=folder,
            env={**clean, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert expect is None or done.returncode == expect, done.stdout + done.stderr
        return done


def copy_sources(folder: Path) -> None:
    """Copy what a clone of this work tree would have."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        path, target = REPOSITORY / name, folder / name
        if path.is_file() or path.is_symlink():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)


def install_wheel(folder: Path) -> Installed:
    """Build the wheel of this work tree and install it in a new environment; no network.

    Other people's packages are those that the tests have: the environment's path ends with
    links to them. Nothing there leads to the checkout, nor to the laboratory's distribution.
    """
    sources = folder / "sources"
    copy_sources(sources)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-index"]
    wheel = [*pip, "wheel", *offline, "--no-build-isolation", f"--wheel-dir={folder}"]
    _run(*wheel, str(sources))
    shutil.rmtree(sources)
    environment = folder / "environment"
    venv.create(environment, symlinks=True)
    (built,) = folder.glob("divvy_gpu-*.whl")
    _run(*pip, f"--python={environment}", "install", *offline, str(built))
    (site,) = environment.glob("lib/python*/site-packages")
    others = folder / "other-packages"
    others.mkdir()
    for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not path.name.startswith(("divvy", "__editable__")):
            (others / path.name).symlink_to(path)
    (site / "other-packages.pth").write_text(f"{others}\n")
    return Installed(environment)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
