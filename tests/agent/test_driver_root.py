"""Where the driver's libraries and programs are below a driver root."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from divvy.agent.driver_root import driver_program, library_folder, nvml_library
from divvy.agent.inject.driver_files import find_driver_files
from divvy.agent.nvml.reset import reset_gpu

VERSION = "580.159.04"


def libraries(folder: Path) -> None:
    """Put a driver's libraries into a folder."""
    folder.mkdir(parents=True)
    for stem in ("libcuda.so", "libnvidia-ml.so"):
        (folder / f"{stem}.{VERSION}").touch()
        (folder / f"{stem}.1").symlink_to(f"{stem}.{VERSION}")


def program(path: Path, script: str = "") -> None:
    """Put a program there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("target", ["/usr/local/nvidia/lib64", "../local/nvidia/lib64"])
def test_finds_the_libraries_to_which_links_lead(tmp_path: Path, target: str) -> None:
    """As on a machine of a cloud: /usr/lib has links, and the driver a folder of its own."""
    libraries(tmp_path / "usr/local/nvidia/lib64")
    (tmp_path / "usr/lib").mkdir()
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / "usr/lib" / name).symlink_to(f"{target}/{name}")
    assert library_folder(tmp_path) == tmp_path / "usr/local/nvidia/lib64"
    files = find_driver_files(tmp_path, VERSION)
    assert [path for path, _ in files.libraries] == [
        f"usr/local/nvidia/lib64/{stem}.so.{VERSION}" for stem in ("libcuda", "libnvidia-ml")
    ]


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib", "lib64", "usr/local/nvidia/lib64"])
def test_finds_the_libraries_of_every_kind_of_root(tmp_path: Path, folder: str) -> None:
    libraries(tmp_path / folder)
    assert nvml_library(tmp_path) == tmp_path / folder / "libnvidia-ml.so.1"


def test_takes_a_program_beside_the_libraries_before_a_script_that_leads_there(
    tmp_path: Path,
) -> None:
    libraries(tmp_path / "usr/local/nvidia/lib64")
    program(tmp_path / "usr/bin/nvidia-smi", "exec /usr/local/nvidia/bin/nvidia-smi")
    assert driver_program(tmp_path, "nvidia-smi") == "usr/bin/nvidia-smi"
    program(tmp_path / "usr/local/nvidia/bin/nvidia-smi")
    assert find_driver_files(tmp_path, VERSION).programs == (
        ("usr/bin/nvidia-smi", "usr/local/nvidia/bin/nvidia-smi"),
    )


def test_finds_the_programs_of_a_root_without_usr(tmp_path: Path) -> None:
    """As GKE has it, below /home/kubernetes/bin/nvidia."""
    libraries(tmp_path / "lib64")
    program(tmp_path / "bin/nvidia-smi")
    assert driver_program(tmp_path, "nvidia-smi") == "bin/nvidia-smi"


def test_resets_by_a_program_to_which_an_absolute_link_leads(tmp_path: Path) -> None:
    """Debian's, where the driver root is the host's file system seen from a container."""
    libraries(tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current")
    program(tmp_path / "usr/lib/nvidia/current/nvidia-smi", f'echo "$@" > {tmp_path}/arguments')
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    asyncio.run(reset_gpu(tmp_path, "GPU-1"))
    assert (tmp_path / "arguments").read_text() == "--gpu-reset -i GPU-1\n"


def test_runs_programs_with_no_c_library_of_the_driver_root(tmp_path: Path) -> None:
    """A whole system's folder: its C library fits no other system's loader."""
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    libraries(folder)
    (folder / "libc.so.6").write_text("of another system")
    program(tmp_path / "usr/bin/nvidia-smi", f"cat /dev/null; env > {tmp_path}/environment")
    asyncio.run(reset_gpu(tmp_path, "GPU-1"))
    environment = (tmp_path / "environment").read_text()
    assert f"LD_PRELOAD={folder}/libnvidia-ml.so.1:{folder}/libcuda.so.1\n" in environment
    assert str(folder) not in environment.partition("LD_LIBRARY_PATH=")[2].partition("\n")[0]
