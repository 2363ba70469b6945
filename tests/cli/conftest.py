"""A project in git, whose stack was committed sliced and is now cut."""

import subprocess
from pathlib import Path

import pytest

STACK = """\
config:
  divvy:cluster:
    profiles:
      slice-4: {timeSlicing: {replicas: 4}}
      seven: {mig: {1g.5gb: 7}}
    pools:
      notebooks:
        hardware: {model: A100-SXM4-40GB, gpus: 4, count: 2}
        profile: slice-4
"""
CUT = STACK.replace("profile: slice-4", "profile: seven")
WRONG = STACK.replace("replicas: 4", "replicas: 1").replace("gpus: 4", "gpu: 4")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the project, in whose folder the test works; `wrong` is a stack with errors."""
    stacks = tmp_path / "stacks"
    stacks.mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    (stacks / "Pulumi.a.yaml").write_text(STACK)
    for command in (
        ("init", "-q"),
        ("add", "."),
        ("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (stacks / "Pulumi.a.yaml").write_text(CUT)
    (stacks / "Pulumi.wrong.yaml").write_text(WRONG)
    below = tmp_path / "below"
    below.mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path
