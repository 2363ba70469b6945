"""What a container sees of a GPU that another one of its pod has."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from conformance.cluster.pods import Outcome
from conformance.observe.sibling import look_beside, sibling_sees_nothing

SOUND = """\
@@ holder
node /dev/nvidia0
cuda ID 0: T4, 15GB
smi GPU 0: T4 (UUID: GPU-a)
@@ 0
@@ look
@@ 0
"""
EXPECTED = "the container with the device sees 1 GPU, the other: nothing"


@pytest.mark.parametrize(
    ("log", "actual"),
    [
        (SOUND, EXPECTED),
        (
            SOUND.replace("look\n", "look\nnode /dev/nvidia0\n"),
            EXPECTED.replace("nothing", "node /dev/nvidia0"),
        ),
        # If no container sees a GPU, that the other one sees none shows nothing.
        (
            SOUND.replace("GPU-a", "none").replace("smi GPU", "smi"),
            EXPECTED.replace("1 GPU", "0 GPU"),
        ),
        ("", "the container with the device sees 0 GPU, the other: phase Failed, exit code 1"),
    ],
)
def test_requires_both_looks(log: str, actual: str) -> None:
    assert sibling_sees_nothing(Outcome("Failed", 1, log, "")) == (EXPECTED, actual)


def test_looks_from_both_containers_while_both_run(tmp_path: Path) -> None:
    """Each waits for the other, whichever starts first."""
    request: dict[str, Any] = {}

    class Pods:
        def run(self, node: str, command: list[str], resource: str, *_: Any, **more: Any) -> None:
            request.update(node=node, resource=resource, main=command, holder=more["beside"])

    look_beside(Pods(), "n1", "nvidia.com/gpu")  # type: ignore[arg-type]
    assert (request["node"], request["resource"]) == ("n1", "nvidia.com/gpu")
    commands = [
        [*request[name][:-1], request[name][-1].replace("/scratch", str(tmp_path))]
        for name in ("main", "holder")
    ]
    with subprocess.Popen(commands[1]) as holder:
        main = subprocess.run(
            commands[0], capture_output=True, text=True, timeout=30, check=True
        ).stdout
        assert holder.wait(timeout=30) == 0
    assert main.startswith("@@ holder\n")
    assert main.endswith("@@ 0\n")
