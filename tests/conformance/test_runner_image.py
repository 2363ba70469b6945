"""The image that runs the suite in a cluster: the program in it, and what building it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from divvy.version_info import revision, version
from lab.cluster.paths import REPOSITORY

SCRIPT = """
from pathlib import Path
import divvy
from divvy.version_info import revision, version
from divvy.image.build import input_digest
from divvy.bundled_sources import CONFORMANCE
print(Path(divvy.__file__).parents[1])
print(version())
print(revision())
print(CONFORMANCE)
print(input_digest("base"))
"""


def test_puts_this_program_into_the_image(tmp_path: Path) -> None:
    """It compares the cluster with what it renders: the same version, of the same sources."""
    copy = "import sys; from pathlib import Path; from conformance.runner_image import copy_divvy; "
    copy += "copy_divvy(Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", copy, tmp_path], cwd=REPOSITORY, check=True)
    assert not list(tmp_path.rglob("__pycache__"))

    def program_facts(folder: Path) -> list[str]:
        command = [sys.executable, "-c", SCRIPT]
        variables = {**os.environ, "PYTHONPATH": str(folder)}
        done = subprocess.run(
            command, cwd="/", env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    own, copied = program_facts(REPOSITORY), program_facts(tmp_path)
    assert copied[:4] == [
        str(tmp_path), version(), revision(), f"{tmp_path}/divvy/share/conformance"
    ]  # fmt: skip
    assert own[4] == copied[4]


def test_builds_no_image_without_kubectl() -> None:
    command = [sys.executable, "-m", "conformance.runner_image", "r:5000", "r:5000/base"]
    done = subprocess.run(
        command, cwd=REPOSITORY, env={"PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "cannot be built and pushed: the image of the suite cannot be built" in done.stderr
    assert "kubectl" in done.stderr
