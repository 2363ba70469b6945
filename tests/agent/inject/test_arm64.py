"""The hook for arm64: what decides in it runs under QEMU; the calls of its own need a kernel."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from divvy.image.build import compile_hook
from lab.target import ARM64_CC, emulator
from tests.agent.inject.bundle import C_SOURCES, SOURCE

pytestmark = pytest.mark.lab


@pytest.mark.parametrize("name", ["vectors", "mutations"])
def test_evaluates_image_requirements_on_arm64(name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    sources = [SOURCE / "json.c", SOURCE / "require.c", C_SOURCES / f"{name}.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-static", f"-I{SOURCE}"]
    subprocess.run([ARM64_CC, *flags, "-o", program, *sources], check=True)
    command = [*emulator("/"), program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_is_built_as_a_static_program_of_arm64(tmp_path: Path) -> None:
    hook = compile_hook(tmp_path, ARM64_CC)
    command = ["readelf", "--wide", "--file-header", "--segments", "--dynamic", hook]
    described = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "AArch64" in described
    assert "INTERP" not in described
    assert "There is no dynamic section in this file" in described
