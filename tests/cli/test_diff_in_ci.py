"""divvy diff as a review in CI needs it: a page, the same everywhere, clear in a shallow clone."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.divvy_command import divvy_command, divvy_environment, run_divvy

POOLS = 100
# A screen or two; a page of HTML has one picture per section.
PAGE_LINES = 60
FORMATS = ("text", "md", "json", "html")
# What differs between machines, and must not be seen in what they write.
OTHER_MACHINE = {
    "LANG": "C",
    "LC_ALL": "C",
    "PYTHONUTF8": "0",
    "PYTHONCOERCECLOCALE": "0",
    "PYTHONIOENCODING": "latin-1",
    "PYTHONHASHSEED": "4711",
    "COLUMNS": "211",
    "LINES": "7",
    "TERM": "xterm-256color",
    "FORCE_COLOR": "1",
    "TZ": "Asia/Kathmandu",
}
THIS_MACHINE = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "1", "COLUMNS": "40", "TERM": "dumb"}


def git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


def stack(changed: dict[int, str]) -> str:
    pools = {
        f"pool-{number:03}": {
            "select": {"pool": f"p{number}"},
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 8, "count": 4},
            "profile": changed.get(number, "whole"),
        }
        for number in range(POOLS)
    }
    profiles = {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}, "seven": {"mig": _SEVEN}}
    return yaml.safe_dump({"config": {"divvy:cluster": {"profiles": profiles, "pools": pools}}})


_SEVEN = {"1g.5gb": 7}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a repository with three revisions: 100 pools, three of them changed, all changed."""
    folder = tmp_path_factory.mktemp("project")
    git(folder, "init", "--quiet")
    (folder / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    everything = dict.fromkeys(range(POOLS), "slices")
    for changed in ({}, {7: "seven", 8: "slices", 50: "slices"}, everything):
        (folder / "Pulumi.prod.yaml").write_text(stack(changed))
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", "next")
    return folder


def diff(folder: Path, *arguments: str) -> str:
    return run_divvy("diff", *arguments, "-s", "prod", folder=folder, expect=2).stdout


def test_three_changes_among_a_hundred_pools_are_one_page(project: Path) -> None:
    text = diff(project, "HEAD~2", "HEAD~1")
    assert len(text.splitlines()) <= PAGE_LINES
    words = " ".join(text.split())
    assert "pool pool-007: 4 nodes, profile whole → seven" in words
    assert "2 pools, each so: pool-008, pool-050: 4 nodes, profile whole → slices" in words
    assert "97 pools unchanged: pool-000, pool-001" in words
    assert words.count("unchanged") == 1
    markdown = diff(project, "HEAD~2", "HEAD~1", "-o", "md")
    (line,) = (one for one in markdown.splitlines() if "unchanged" in one)
    assert line.startswith("97 pools unchanged: ")
    assert markdown.count("\n### ") == 3  # two changes and the total
    page = diff(project, "HEAD~2", "HEAD~1", "-o", "html")
    assert (page.count("<section"), page.count("97 pools unchanged")) == (3, 1)
    document = json.loads(diff(project, "HEAD~2", "HEAD~1", "-o", "json"))
    assert [one["pool"] for one in document["changes"]] == ["pool-007", "pool-008", "pool-050"]
    assert len(document["unchangedPools"]) == 97


def test_a_hundred_pools_that_change_alike_are_one_page(project: Path) -> None:
    text = diff(project, "HEAD~2", "HEAD")
    assert len(text.splitlines()) <= PAGE_LINES
    assert "100 pools, each so: pool-000, pool-001" in " ".join(text.split())
    assert "unchanged" not in text


def test_every_machine_writes_the_same_bytes(project: Path) -> None:
    # A terminal for the errors, and the results into a pipe, as in `divvy diff … | less`.
    primary, secondary = pty.openpty()
    try:
        for form in FORMATS:
            made = []
            for machine in (THIS_MACHINE, OTHER_MACHINE):
                plain = {
                    key: value
                    for key, value in divvy_environment(machine).items()
                    if key not in {"NO_COLOR", "LC_CTYPE", *OTHER_MACHINE} or key in machine
                }
                done = subprocess.run(
                    divvy_command("diff", "HEAD~2", "HEAD~1", "-s", "prod", "-o", form),
                    cwd=project,
                    env=plain,
                    stdin=secondary if machine is OTHER_MACHINE else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=secondary if machine is OTHER_MACHINE else subprocess.DEVNULL,
                    timeout=100,
                    check=False,
                )
                assert done.returncode == 2, (form, machine)
                made.append(done.stdout)
            assert made[0] == made[1], form
            assert "→".encode() in made[0] or form == "json"
            assert b"\x1b" not in made[0]
    finally:
        os.close(primary)
        os.close(secondary)


@pytest.mark.parametrize("side", ["HEAD~2", "HEAD~2:Pulumi.prod.yaml", "origin/main"])
def test_a_shallow_clone_gets_an_error_that_says_what_would_be_right(
    project: Path, tmp_path: Path, side: str
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", "--single-branch", project.as_uri(), "shallow")
    git(tmp_path / "shallow", "remote", "rename", "origin", "upstream")
    done = run_divvy("diff", side, "prod", folder=tmp_path / "shallow", expect=1)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert side in line
    assert "this clone is shallow" in line
    assert "GitHub: fetch-depth: 0, GitLab: GIT_DEPTH: 0" in line
