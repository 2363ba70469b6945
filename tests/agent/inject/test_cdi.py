"""The CDI specification: each device gets its own nodes, every container the driver's files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from divvy.agent.inject.cdi import cdi_spec, keep_described, spec_bytes, write_spec
from divvy.agent.inject.container_edits import (
    common_edits,
    device_edits,
    without_cdi,
    without_hook,
)
from divvy.agent.inject.driver_files import DriverFiles, find_driver_files
from divvy.agent.inject.hook import Hook, hook_call
from divvy.agent.inject.problem import InjectionProblem
from tests.agent.devices import gpu, instance, snapshot

ROOT = PurePosixPath("/run/nvidia/driver")
FILES = DriverFiles(
    libraries=(("usr/lib64/libcuda.so.550.163.01", ("libcuda.so.550.163.01", "libcuda.so.1")),),
    library_folder="usr/lib64",
    programs=(("usr/bin/nvidia-smi", "usr/bin/nvidia-smi"),),
    control_nodes=("dev/nvidiactl",),
    socket_folders=("run/nvidia-persistenced",),
)
SNAPSHOT = snapshot(gpu(0), gpu(1, mig=True, instances=(instance(3, 14, 0, 2),)))
COMMON, EDITS = common_edits(FILES, ROOT), device_edits(SNAPSHOT, ROOT)
HOOK = Hook(Path("/var/lib/divvy/hook-1/divvy-hook"), Path("/var/lib/divvy/hook-1/ldconfig"))
SPEC = cdi_spec(COMMON, EDITS, [hook_call(HOOK, SNAPSHOT, FILES)])
DEVICES = {device["name"]: device["containerEdits"]["deviceNodes"] for device in SPEC["devices"]}


def test_describes_a_gpus_device_node_below_the_driver_root() -> None:
    assert DEVICES["GPU-0"] == [
        {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0", "permissions": "rw"}
    ]


def test_describes_a_mig_device_as_its_gpu_and_two_capabilities() -> None:
    assert [node["path"] for node in DEVICES["MIG-3"]] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidia-caps/nvidia-cap103",
    ]


def test_omits_a_lost_gpu_whose_minor_may_be_reused() -> None:
    lost = replace(gpu(0), lost=True, minor=1, instances=(instance(5, 14, 0, 2),))
    assert list(device_edits(snapshot(lost, gpu(1)), ROOT)) == ["GPU-1"]


def test_mounts_nothing_of_the_host_writable_or_recursively() -> None:
    mounts = SPEC["containerEdits"]["mounts"]
    assert {"/run/nvidia-persistenced", "/usr/bin/nvidia-smi"} <= {
        mount["containerPath"] for mount in mounts
    }
    for mount in mounts:
        assert {"ro", "nosuid", "nodev", "bind"} <= set(mount["options"]), mount


def test_mounts_libraries_under_the_names_programs_ask_for() -> None:
    paths = [mount["containerPath"] for mount in SPEC["containerEdits"]["mounts"]]
    assert "/usr/lib64/libcuda.so.1" in paths
    assert "/usr/bin/nvidia-smi" in paths


def test_passes_the_driver_to_the_hook_in_a_clean_environment() -> None:
    (hook,) = SPEC["containerEdits"]["hooks"]
    assert hook["hookName"] == "createContainer"
    assert hook["path"] == "/var/lib/divvy/hook-1/divvy-hook"
    assert hook["env"]
    assert hook["args"][1:] == [
        *("--cuda=12.4", "--driver=550.163.01", "--brand=nvidia", "--arch=8.0"),
        *("--ldconfig=/var/lib/divvy/hook-1/ldconfig", "--folder=/usr/lib64"),
    ]


def test_reports_mixed_gpus_as_the_weakest() -> None:
    other = replace(gpu(1), brand="geforce", compute_capability=(7, 5))
    call = hook_call(HOOK, snapshot(gpu(0), other), FILES)
    assert {"--brand=unknown", "--arch=7.5"} <= set(call.arguments)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_mounts_libraries_on_default_paths_without_cdi(machine: str) -> None:
    edits = without_cdi(without_hook(COMMON, FILES.library_folder, machine), [EDITS["GPU-0"]])
    paths = {mount.path for mount in edits.mounts}
    folders = ("/usr/lib64", f"/usr/lib/{machine}-linux-gnu")
    assert {f"{folder}/libcuda.so.1" for folder in folders} <= paths
    assert {"/usr/bin/nvidia-smi", "/run/nvidia-persistenced"} <= paths
    assert [node.path for node in edits.nodes] == ["/dev/nvidiactl", "/dev/nvidia0"]
    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_writes_the_same_bytes_for_the_same_hardware() -> None:
    assert spec_bytes(SPEC) == spec_bytes(dict(reversed(list(SPEC.items()))))


def test_writes_a_specification_once(tmp_path: Path) -> None:
    assert write_spec(tmp_path, spec_bytes(SPEC))
    assert not write_spec(tmp_path, spec_bytes(SPEC))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_reports_a_specification_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InjectionProblem, match="the CDI specification is not written: .*file"):
        write_spec(tmp_path / "file", b"{}")


NOT_OURS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "large": lambda path: (path.touch(), os.truncate(path, 1 << 40)),
}


@pytest.mark.parametrize("kind", NOT_OURS)
def test_replaces_what_others_put_in_the_place_of_a_specification(
    tmp_path: Path, kind: str
) -> None:
    """To read a pipe would block the agent, and a device or a large file fill its memory."""
    NOT_OURS[kind](tmp_path / "divvy.gpu-gpu.json")
    NOT_OURS[kind](tmp_path / "divvy.gpu-other-gpu.json")
    NOT_OURS[kind](tmp_path / "vendor.json")
    assert write_spec(tmp_path, spec_bytes(SPEC))
    assert (tmp_path / "divvy.gpu-gpu.json").read_bytes() == spec_bytes(SPEC)
    keep_described(tmp_path, EDITS)
    assert {path.name for path in tmp_path.iterdir()} == {"divvy.gpu-gpu.json", "vendor.json"}


def test_finds_the_files_of_debians_packages(tmp_path: Path) -> None:
    """There, what is in the usual folders leads to the files by absolute links."""
    current = tmp_path / "usr/lib/x86_64-linux-gnu/nvidia/current"
    programs, alternatives = tmp_path / "usr/lib/nvidia/current", tmp_path / "etc/alternatives"
    for folder in (current, programs, alternatives, tmp_path / "usr/bin"):
        folder.mkdir(parents=True)
    (current / "libnvidia-ml.so.550.163.01").touch()
    (current / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.163.01")
    (programs / "nvidia-smi").touch()
    links = {
        "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": "nvidia--libnvidia-ml.so.1",
        "usr/bin/nvidia-smi": "nvidia--nvidia-smi",
        "usr/bin/nvidia-debugdump": "nvidia--nvidia-debugdump",
    }
    for link, alternative in links.items():
        (tmp_path / link).symlink_to(f"/etc/alternatives/{alternative}")
    nvml = "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1"
    (alternatives / "nvidia--libnvidia-ml.so.1").symlink_to(nvml)
    (alternatives / "nvidia--nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    (alternatives / "nvidia--nvidia-debugdump").symlink_to("nvidia--nvidia-debugdump")
    files = find_driver_files(tmp_path, "550.163.01")
    assert files.library_folder == "usr/lib/x86_64-linux-gnu/nvidia/current"
    assert files.programs == (("usr/bin/nvidia-smi", "usr/lib/nvidia/current/nvidia-smi"),)
    mounts = {mount.path: mount.host for mount in common_edits(files, PurePosixPath("/")).mounts}
    assert mounts["/usr/bin/nvidia-smi"] == "/usr/lib/nvidia/current/nvidia-smi"


def test_mounts_only_libraries_of_the_loaded_driver(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    for name in ("libcuda.so.550.163.01", "libcuda.so.570.1", "libnvidia-ml.so.550.163.01"):
        (folder / name).touch()
    (folder / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.550.163.01")
    files = find_driver_files(tmp_path, "550.163.01")
    assert [Path(path).name for path, _ in files.libraries] == [
        "libcuda.so.550.163.01",
        "libnvidia-ml.so.550.163.01",
    ]
