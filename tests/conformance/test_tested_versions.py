"""What a report says of the versions that were tested."""

import subprocess
from pathlib import Path
from typing import Any

from conformance.tested_versions import node_versions, program_versions
from divvy.version_info import git_revision


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_names_a_stack_files_revision_and_that_it_was_edited(tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.s.yaml"
    file.write_text("config: {}\n")
    assert git_revision(file) == ""
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=first")
    revision = git(tmp_path, "log", "-1", "--format=%h")
    assert git_revision(file) == revision
    file.write_text("config: {a: 1}\n")
    assert git_revision(file) == f"{revision}, edited since"


def test_reads_a_nodes_software() -> None:
    node: dict[str, Any] = {
        "metadata": {"labels": {"nvidia.com/cuda.runtime-version.full": "12.4"}},
        "status": {
            "nodeInfo": {"kubeletVersion": "v1.36.2", "kernelVersion": "6.1", "osImage": ""}
        },
    }
    assert node_versions(node) == {"kubelet": "v1.36.2", "kernel": "6.1", "cuda": "12.4"}


def test_names_the_program() -> None:
    assert program_versions()["version"][0].isdigit()
