"""What the hook refuses: the format of requirements, and calls that are none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.agent.inject.bundle import (
    C_SOURCES,
    GIVEN,
    SOURCE,
    Container,
    administrator,
)


@pytest.mark.parametrize("name", ["vectors", "mutations"])
def test_evaluates_image_requirements(sanitized: Path, name: str) -> None:
    program = sanitized / name
    sources = [SOURCE / "json.c", SOURCE / "require.c", C_SOURCES / f"{name}.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g", f"-I{SOURCE}"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    subprocess.run(["cc", *flags, *sanitizers, "-o", program, *sources], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@administrator
def test_refuses_an_image_for_a_newer_cuda_with_the_reason(container: Container) -> None:
    container.environment = ["PATH=/bin", "NVIDIA_REQUIRE_CUDA=cuda>=13.0"]
    done = container.call(cache=False)
    assert done.returncode == 1
    assert "NVIDIA_REQUIRE_CUDA=cuda>=13.0, but driver 550.163.01 supports CUDA 12.4" in done.stderr
    assert done.stderr.count("\n") == 1
    container.environment.append("NVIDIA_DISABLE_REQUIRE=1")
    assert container.call(cache=False).returncode == 0


@pytest.mark.parametrize("state", ["", "{}", '{"bundle": "relative"}', '{"bundle": "/none"}'])
def test_fails_on_a_state_without_a_bundle(sanitized: Path, state: str) -> None:
    done = subprocess.run(
        [sanitized / "divvy-hook", *GIVEN], input=state, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("divvy: ")
