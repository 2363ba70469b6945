"""A run that was ended goes on with what has not passed on the same commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cluster.paths import REPOSITORY
from tests.continued import VARIABLE

TESTS = """
import os, pytest

@pytest.fixture
def late():
    yield
    assert "FAULTLESS" in os.environ

def test_passes(): pass
def test_fails(): assert "FAULTLESS" in os.environ
def test_ends_badly(late): pass
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm a"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def run(folder: Path, **variables: str) -> tuple[int, str]:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "tests.continued"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        env={
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            VARIABLE: str(folder.parent / "passed"),
            **variables,
        },
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_leaves_out_what_has_passed(folder: Path) -> None:
    code, output = run(folder)
    assert (code, "1 failed, 2 passed, 1 error" in output) == (1, True), output
    code, output = run(folder, FAULTLESS="1")
    assert (code, "2 passed, 1 deselected" in output) == (0, True), output
    code, output = run(folder)
    assert (code, "3 deselected" in output) == (0, True), output


def test_continues_nothing_on_files_that_are_no_commit(folder: Path) -> None:
    (folder / "test_it.py").write_text("")
    code, output = run(folder)
    assert (code, "a run is continued on a commit" in output) == (4, True), output
