"""The distribution's name and version, and that everything that installs Divvy names them."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from divvy import version_info
from divvy.init.project import Ci, project_files

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# A requirement after `pip install` and its options; Python code that builds one has no such text.
INSTALL = re.compile(r"pip3? install (?:-{1,2}[\w-]+(?:[ =][\w./:-]+)? )*['\"]?(divvy[^\s'\"]*)")


def installs() -> list[tuple[str, str]]:
    """Return every requirement on Divvy that the repository tells somebody to install."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    matches = []
    for name in listed.stdout.split("\0"):
        path = ROOT / name
        if path.suffix in {".md", ".yaml", ".yml", ".py", ".txt", ".j2", ""} and path.is_file():
            if name.startswith("tests/"):
                continue
            text = path.read_text(errors="replace")
            matches += [(name, match) for match in INSTALL.findall(text)]
    return matches


def test_has_a_name_that_is_free_on_the_index() -> None:
    assert PROJECT["name"] == version_info.NAME == "divvy-gpu"
    assert version_info.version() == PROJECT["version"]


def test_is_pinned_by_name_and_version_in_every_install_line() -> None:
    lines = installs()
    assert len(lines) >= 3
    pinned = re.compile(rf"divvy-gpu\[[a-z,]+\]=={re.escape(PROJECT['version'])}")
    assert [(name, line) for name, line in lines if not pinned.fullmatch(line)] == []


@pytest.mark.parametrize("ci", ["github", "gitlab"])
def test_is_pinned_where_ci_installs_it_beside_credentials(ci: Ci) -> None:
    text = "\n".join(project_files("gpus", ci, version_info.requirement, "{}").values())
    assert "{{cli" not in text
    pinned = f"pip install 'divvy-gpu[cli]=={PROJECT['version']}'"
    assert text.count(pinned) == 1
    assert text.count("pip install") == 2


class Installed:
    """A distribution that was installed from a wheel's URL."""

    version = "1.2.3"

    def __init__(self, origin: dict[str, Any]) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str:
        assert name == "direct_url.json"
        return json.dumps(self.origin)


def test_is_required_by_its_hash_if_it_came_from_a_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "https://example.org/divvy_gpu-1.2.3-py3-none-any.whl"
    wheel = {"url": url, "archive_info": {"hashes": {"sha256": "ab12"}}}
    monkeypatch.setattr(version_info, "distribution", lambda _: Installed(wheel))
    assert version_info.requirement("cli") == f"divvy-gpu[cli] @ {url}#sha256=ab12"
    assert version_info.version_words().endswith(f", from {url}")
    monkeypatch.setattr(version_info, "distribution", lambda _: Installed({"url": "file:///src"}))
    assert version_info.requirement("cli") == "divvy-gpu[cli]==1.2.3"


def test_keeps_a_path_of_this_machine_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "file:///home/alice/divvy_gpu-1.2.3-py3-none-any.whl"
    wheel = {"url": url, "archive_info": {"hashes": {"sha256": "ab12"}}}
    monkeypatch.setattr(version_info, "distribution", lambda _: Installed(wheel))
    assert version_info.requirement("cli") == "divvy-gpu[cli]==1.2.3"
    command = f"pip install 'divvy-gpu[cli] @ {url}#sha256=ab12'"
    assert version_info.install_command("cli") == command
    for ci in ("github", "gitlab"):
        files = project_files("gpus", ci, version_info.requirement, "{}")
        assert not any("alice" in text for text in files.values())


def test_keeps_the_revision_of_an_archive_in_the_repository_of_a_packager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    write_revision = runpy.run_path(str(ROOT / "setup.py"))["_write_revision"]
    identity = ("-c", "user.name=packager", "-c", "user.email=packager@example.com")
    for command in (("init",), (*identity, "commit", "--allow-empty", "--message=packaged")):
        subprocess.run(["git", *command], cwd=tmp_path, capture_output=True, check=True)
    monkeypatch.chdir(tmp_path)
    wheel = tmp_path / "build/lib/divvy/revision.txt"
    wheel.parent.mkdir(parents=True)
    write_revision(tmp_path / "build/lib")
    assert wheel.is_file()
    # setuptools has copied it, with the package's other files.
    own = tmp_path / "divvy/revision.txt"
    own.parent.mkdir()
    own.write_text("v0.2.0\n")
    wheel.write_text("v0.2.0\n")
    write_revision(tmp_path / "build/lib")
    assert wheel.read_text() == "v0.2.0\n"


def test_reports_version_revision_and_origin() -> None:
    words = version_info.version_words()
    assert words.startswith(f"divvy-gpu {PROJECT['version']}, revision ")
    assert words.partition(", from ")[2]
