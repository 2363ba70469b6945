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


def test_shows_three_changes_among_a_hundred_pools_on_one_page(project: Path) -> None:
    text = diff(project, "HEAD~2", "HEAD~1")
    assert len(text.splitlines()) <= PAGE_LINES
    words = " ".join(text.split())
    assert "pool pool-007: 4 nodes, profile whole → seven" in words
    assert "2 pools, each so: pool-008, pool-050: 4 nodes, profile whole → slices" in words
    assert "97 pools unchanged: pool-000, pool-001" in words
    assert words.count("unchanged") == 1
    markdown = diff(project, "HEAD~2", "HEAD~1", "-o", "md")
    (line,) = (splitline for splitline in markdown.splitlines() if "unchanged" in splitline)
    assert line.startswith("97 pools unchanged: ")
    assert markdown.count("\n### ") == 3  # two changes and the total
    page = diff(project, "HEAD~2", "HEAD~1", "-o", "html")
    assert (page.count("<section"), page.count("97 pools unchanged")) == (3, 1)
    document = json.loads(diff(project, "HEAD~2", "HEAD~1", "-o", "json"))
    assert [change["pool"] for change in document["changes"]] == [
        "pool-007",
        "pool-008",
        "pool-050",
    ]
    assert len(document["unchangedPools"]) == 97


def test_shows_a_hundred_pools_that_change_alike_on_one_page(project: Path) -> None:
    text = diff(project, "HEAD~2", "HEAD")
    assert len(text.splitlines()) <= PAGE_LINES
    assert "100 pools, each so: pool-000, pool-001" in " ".join(text.split())
    assert "unchanged" not in text


def test_writes_the_same_bytes_on_every_machine(project: Path) -> None:
    # A terminal for the errors, and the results into a pipe, as in `divvy diff … | less`.
    primary, secondary = pty.openpty()
    try:
        for form in FORMATS:
            outputs = []
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
                outputs.append(done.stdout)
            assert outputs[0] == outputs[1], form
            assert "→".encode() in outputs[0] or form == "json"
            assert b"\x1b" not in outputs[0]
    finally:
        os.close(primary)
        os.close(secondary)


@pytest.mark.parametrize("side", ["HEAD~2", "HEAD~2:Pulumi.prod.yaml", "origin/main"])
def test_explains_a_shallow_clone_with_a_remedy(project: Path, tmp_path: Path, side: str) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", "--single-branch", project.as_uri(), "shallow")
    git(tmp_path / "shallow", "remote", "rename", "origin", "upstream")
    done = run_divvy("diff", side, "prod", folder=tmp_path / "shallow", expect=1)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert side in line
    assert "this clone is shallow" in line
    assert "GitHub: fetch-depth: 0, GitLab: GIT_DEPTH: 0" in line


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    """Give a project whose last commit is before a change, a new stack and a deleted one."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    (tmp_path / "stacks").mkdir()
    for name in ("old", "prod", "same"):
        (tmp_path / f"stacks/Pulumi.{name}.yaml").write_text(stack({}))
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "before")
    (tmp_path / "stacks/Pulumi.old.yaml").unlink()
    (tmp_path / "stacks/Pulumi.prod.yaml").write_text(stack({7: "seven", 8: "slices"}))
    (tmp_path / "stacks/Pulumi.new.yaml").write_text(stack({}))
    return tmp_path


def test_compares_all_stacks_with_a_revision_in_one_comment(stacks: Path) -> None:
    text = run_divvy("diff", "--all", "HEAD", "-o", "md", folder=stacks, expect=2).stdout
    lines = text.splitlines()
    assert lines[0] == "## GPU topology: 3 of 4 stacks change"
    assert lines[2].startswith("* 🛑 `prod`: 64 GPUs on 8 nodes must be idle; each change waits")
    assert lines[3].startswith("* ✅ `new`: No running pod is touched; 400 nodes come with")
    assert lines[4].startswith("* 🛑 `old`: the stack file is deleted: its objects stay")
    assert lines[5] == "* unchanged: same"
    assert "## GPU topology `prod@HEAD` → `prod`: 2 changes" in lines
    assert "## GPU topology `nothing` → `new`: " in text
    document = json.loads(
        run_divvy("diff", "--all", "HEAD", "-o", "json", folder=stacks, expect=2).stdout
    )
    assert [stack["after"] for stack in document["stacks"]] == ["prod", "new"]
    assert (document["unchangedStacks"], document["deletedStacks"]) == (["same"], ["old"])
    assert document["stacks"][0]["objects"]["updated"] == ["ConfigMap divvy"]
    below = run_divvy("diff", "--all", "HEAD", folder=stacks / "stacks", expect=2).stdout
    assert "prod@HEAD → prod: 2 changes" in " ".join(below.split())


@pytest.mark.parametrize(
    "invalid",
    [
        b"config: {divvy:cluster: {nonsense: 1}}",
        b"config: [",
        b"\xff\xfec\0",
        100_000 * b"[",
        b"",
        b"config: {divvy:cluster: 3}",
    ],
)
def test_reviews_the_change_that_repairs_a_stack_file(stacks: Path, invalid: bytes) -> None:
    (stacks / "stacks/Pulumi.prod.yaml").write_bytes(invalid)
    git(stacks, "add", "--all")
    git(stacks, "commit", "--quiet", "--message", "broken")
    (stacks / "stacks/Pulumi.prod.yaml").write_text(stack({}))
    text = run_divvy("diff", "--all", "HEAD", "-o", "md", folder=stacks, expect=2).stdout
    lines = text.splitlines()
    assert lines[0] == "## GPU topology: 1 of 3 stacks change"
    assert lines[2].startswith("* 🛑 `prod`: HEAD:")
    assert "Pulumi.prod.yaml" in lines[2]
    assert lines[2].endswith(
        ": what changes is not known; divvy plan -s prod shows what it will be"
    )
    assert lines[3] == "* unchanged: new, same"
    plain = run_divvy("diff", "--all", "HEAD", folder=stacks, expect=2).stdout
    assert "what changes is not known" in " ".join(plain.split())
    (stacks / "stacks/Pulumi.new.yaml").write_bytes(invalid)
    done = run_divvy("diff", "--all", "HEAD", folder=stacks, expect=1)
    assert "Pulumi.new.yaml" in done.stderr


def test_does_not_say_that_nothing_changes_where_there_is_no_stack_file(tmp_path: Path) -> None:
    """The files may be in another folder than `stackConfigDir` says."""
    git(tmp_path, "init", "--quiet")
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "before")
    done = run_divvy("diff", "--all", "HEAD", folder=tmp_path, expect=1)
    assert "there is no stack file to compare" in done.stderr


def test_compares_all_stacks_of_two_revisions(stacks: Path) -> None:
    git(stacks, "add", "--all")
    git(stacks, "commit", "--quiet", "--message", "after")
    text = run_divvy("diff", "--all", "HEAD~1", "HEAD", "-o", "md", folder=stacks, expect=2).stdout
    assert text.splitlines()[0] == "## GPU topology: 3 of 4 stacks change"
    run_divvy("diff", "--all", "HEAD", "HEAD", folder=stacks, expect=0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((), "--all compares a revision with"),
        (("HEAD", "--live"), "leave out --live and -s"),
        (("HEAD", "-o", "html"), "a page of HTML shows one stack"),
        (("nowhere",), "nowhere is not a revision that git knows"),
    ],
)
def test_refuses_options_that_all_stacks_cannot_take(
    stacks: Path, arguments: tuple[str, ...], error: str
) -> None:
    done = run_divvy("diff", "--all", *arguments, folder=stacks, expect=1)
    assert error in done.stderr
    assert done.stdout == ""


def test_reports_no_change_only_when_no_object_changes(project: Path, tmp_path: Path) -> None:
    before, after = tmp_path / "Pulumi.a.yaml", tmp_path / "Pulumi.b.yaml"
    before.write_text(stack({}))
    after.write_text(stack({}).replace("slices:", "other:"))
    assert "slices" in stack({})
    done = run_divvy("diff", str(before), str(after), "-o", "md", folder=project, expect=2)
    assert "* profiles that go: slices; a node whose label divvy.gpu/profile names" in done.stdout
    assert "* objects: 1 updated (ConfigMap divvy)" in done.stdout
    done = run_divvy("diff", str(before), str(before), "-o", "md", folder=project, expect=0)
    assert "No object changes, and no node will do anything else." in done.stdout
