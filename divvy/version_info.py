"""The installed distribution: its name on the Python index, version, revision and origin.

``divvy`` on the index is another program, a configuration manager of 2021: with both installed,
the last one has the command.
"""

from __future__ import annotations

import json
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

NAME = "divvy-gpu"
_REVISION = "revision.txt"
_SECONDS = 20


def version() -> str:
    """Return the installed version, "unknown" where the package runs from a bare folder."""
    try:
        return distribution(NAME).version
    except PackageNotFoundError:
        return "unknown"


def revision() -> str:
    """Return the revision of the sources: a wheel's from its build, a checkout's from git."""
    built = files("divvy") / _REVISION
    if built.is_file():
        return built.read_text(encoding="utf-8").strip()
    return git_revision(Path(__file__).resolve().parent)


def git_revision(path: Path) -> str:
    """Return the last revision of a file or folder, "" if it is in no git; says if edited."""
    folder = path if path.is_dir() else path.parent
    last = _git(folder, "log", "-1", "--format=%h", "--", str(path))
    if not last:
        return ""
    changed = _git(folder, "status", "--porcelain", "--", str(path))
    return f"{last}, edited since" if changed else last


def version_words() -> str:
    """Return what ``divvy --version`` says: ``divvy-gpu 0.2.0, revision abc1234, from …``."""
    built = revision()
    revised = f", revision {built}" if built else ""
    return f"{NAME} {version()}{revised}, from {_origin()}"


def requirement(extras: str, *, here: bool = False) -> str:
    """Return the requirement that installs this version again, by its hash where that is known.

    The hash is known of a wheel that was installed by its path or URL; the index's is not. A path
    is good ``here`` alone: another machine takes the version from its index.
    """
    origin = _direct_url()
    digest = (origin.get("archive_info") or {}).get("hashes", {}).get("sha256")
    if digest and (here or not is_installed_from_a_path()):
        return f"{NAME}[{extras}] @ {origin['url']}#sha256={digest}"
    return f"{NAME}[{extras}]=={version()}"


def is_installed_from_a_path() -> bool:
    """Return whether pip installed a file or folder of this machine."""
    return str(_direct_url().get("url")).startswith("file:")


def install_command(extras: str) -> str:
    """Return the command that installs this version here with some extras."""
    return f"pip install '{requirement(extras, here=True)}'"


def _origin() -> str:
    url = str(_direct_url().get("url") or "")
    return url or str(Path(__file__).resolve().parent)


def _direct_url() -> dict[str, Any]:
    """Return where pip installed from, {} for a package of the index (PEP 610)."""
    try:
        text = distribution(NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    return dict(json.loads(text)) if text else {}


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, check=False, timeout=_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
