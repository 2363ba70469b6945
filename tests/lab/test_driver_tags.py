"""Driver tags against a real registry, through the real skopeo."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from divvy.lab import registry
from tests.divvy_command import run_divvy
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab


def divvy(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_divvy("chart", "--check-driver-tags", *arguments, expect=None, timeout=60)


@pytest.fixture(scope="module")
def repository(lab: RunningLab) -> str:
    """Push two tiny images under tags that the operator's drivers have."""
    repository_address = f"{registry.address(lab.description)}/nvidia"
    for tag in ("550.163.01-ubuntu22.04", "550.163.01-rhel9.4"):
        subprocess.run(
            [
                "skopeo",
                "copy",
                "--quiet",
                "--src-tls-verify=false",
                "--dest-tls-verify=false",
                f"docker://{lab.busybox}",
                f"docker://{repository_address}/driver:{tag}",
            ],
            check=True,
        )
    return repository_address


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    def pool(name: str, os: str) -> dict[str, object]:
        hardware = {"model": "A30", "gpus": 1, "count": 1, "os": os}
        return {"select": {"pool": name}, "hardware": hardware, "profile": "whole"}

    cluster = {
        "profiles": {"whole": {}},
        "pools": {"a": pool("a", "ubuntu22.04"), "b": pool("b", "rhel9.4")},
        "driver": {"version": "550.163.01"},
    }
    path = tmp_path / "Pulumi.x.yaml"
    path.write_text(yaml.safe_dump({"config": {"divvy:cluster": cluster}}))
    return path


def test_lists_existing_tags_and_how_to_mirror_them(repository: str, stack: Path) -> None:
    where = ("--file", stack, "--driver-repository", repository, "--plain-http")
    done = divvy(*where, "--mirror", "mirror.example/gpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"pool a: {repository}/driver:550.163.01-ubuntu22.04 exists",
        f"pool b: {repository}/driver:550.163.01-rhel9.4 exists",
        f"skopeo copy --src-tls-verify=false docker://{repository}/driver:550.163.01-ubuntu22.04 "
        "docker://mirror.example/gpu/driver:550.163.01-ubuntu22.04",
        f"skopeo copy --src-tls-verify=false docker://{repository}/driver:550.163.01-rhel9.4 "
        "docker://mirror.example/gpu/driver:550.163.01-rhel9.4",
    ]


def test_reports_a_missing_tag(repository: str, stack: Path) -> None:
    where = ("--file", stack, "--driver-repository", repository, "--plain-http")
    done = divvy(*where, "--driver-version", "560.1")
    assert done.returncode == 1
    assert "driver:560.1-ubuntu22.04 is NOT there; there is none of version 560.1" in done.stdout


def test_reports_an_unreachable_registry_and_a_missing_repository(
    repository: str, stack: Path
) -> None:
    done = divvy("--file", stack, "--driver-repository", "127.0.0.1:1/x", "--plain-http")
    assert done.returncode == 1
    assert done.stderr == (
        "error: could not list tags of 127.0.0.1:1/x/driver (connection refused); "
        "driver tags were not checked\n"
    )
    done = divvy("--file", stack, "--driver-repository", f"{repository}/none", "--plain-http")
    assert done.returncode == 1
    assert "driver tags were not checked" in done.stderr
    assert len(done.stderr.splitlines()) == 1
