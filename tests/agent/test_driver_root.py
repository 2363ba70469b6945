"""Where the driver's libraries and programs are below a driver root."""

from __future__ import annotations

import asyncio
from pathlib import Path, PurePosixPath

import pytest

from divvy.agent.driver_root import (
    driver_program,
    libraries_problem,
    library_folder,
    nvml_library,
    preloaded,
)
from divvy.agent.inject.driver_files import find_driver_files
from divvy.agent.inject.hook import Hook, limiting_call
from divvy.agent.inject.problem import InjectionProblem
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


@pytest.mark.parametrize("linked", ["the folder", "each file"])
def test_leaves_the_root_by_no_absolute_link(tmp_path: Path, linked: str) -> None:
    """Seen from a container, the kernel follows such a link to files of the container's own."""
    root, elsewhere = tmp_path / "root", tmp_path / "opt/nvidia"
    inside = root / elsewhere.relative_to("/")
    for folder in (elsewhere, inside):
        libraries(folder / "lib")
        program(folder / "bin/nvidia-smi")
    for name, target in (("lib64", elsewhere / "lib"), ("bin", elsewhere / "bin")):
        place = root / "usr" / name
        if linked == "the folder":
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(target)
        else:
            place.mkdir(parents=True)
            for file in target.iterdir():
                (place / file.name).symlink_to(file)
    relative = inside.relative_to(root)
    nvml = f"{relative}/lib/libnvidia-ml.so.{VERSION}"
    assert nvml_library(root) == root / nvml
    assert preloaded(root) == {"LD_PRELOAD": f"{root / nvml}:{inside}/lib/libcuda.so.{VERSION}"}
    assert driver_program(root, "nvidia-smi") == f"{relative}/bin/nvidia-smi"
    assert libraries_problem(root, VERSION) == ""
    files = find_driver_files(root, VERSION)
    assert {file for file, _ in files.libraries} == {
        nvml,
        f"{relative}/lib/libcuda.so.{VERSION}",
    }
    hook = Hook(Path("hook"), Path("ldconfig"))
    host = PurePosixPath("/run/nvidia/driver")
    call = limiting_call(hook, files, host, PurePosixPath("shares"), PurePosixPath("groups"))
    assert f"--library={host / nvml}" in call.arguments


def test_takes_versions_to_which_absolute_links_lead(tmp_path: Path) -> None:
    """The folder is the one of libnvidia-ml.so.1, and the other file's is another."""
    folder, elsewhere = tmp_path / "usr/lib64", tmp_path / "opt"
    libraries(folder)
    elsewhere.mkdir()
    (folder / f"libcuda.so.{VERSION}").rename(elsewhere / "libcuda")
    (folder / f"libcuda.so.{VERSION}").symlink_to("/opt/libcuda")
    assert libraries_problem(tmp_path, VERSION) == ""
    assert preloaded(tmp_path)["LD_PRELOAD"].endswith(f":{elsewhere}/libcuda")
    names = (f"libcuda.so.{VERSION}", "libcuda.so.1", "libcuda.so")
    assert ("opt/libcuda", names) in find_driver_files(tmp_path, VERSION).libraries
    (elsewhere / "libcuda").unlink()
    assert VERSION in libraries_problem(tmp_path, VERSION)
    with pytest.raises(InjectionProblem, match=f"/usr/lib64/libcuda.so.{VERSION} leads to no file"):
        find_driver_files(tmp_path, VERSION)


@pytest.mark.parametrize("folder", ["usr/lib64", "usr/lib", "lib64", "usr/local/nvidia/lib64"])
def test_finds_the_libraries_of_every_kind_of_root(tmp_path: Path, folder: str) -> None:
    libraries(tmp_path / folder)
    assert nvml_library(tmp_path) == tmp_path / folder / f"libnvidia-ml.so.{VERSION}"


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
    files = ":".join(f"{folder}/{stem}.so.{VERSION}" for stem in ("libnvidia-ml", "libcuda"))
    assert f"LD_PRELOAD={files}\n" in environment
    assert str(folder) not in environment.partition("LD_LIBRARY_PATH=")[2].partition("\n")[0]
