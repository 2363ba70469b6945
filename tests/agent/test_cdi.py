"""The CDI specification: each device gets its own nodes, every container the driver's files."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from divvy.agent.cdi import cdi_spec, spec_bytes, write_spec
from divvy.agent.driver_files import DriverFiles, find_driver_files
from tests.agent.devices import gpu, instance, snapshot

ROOT = PurePosixPath("/run/nvidia/driver")
FILES = DriverFiles(
    libraries=(("usr/lib64/libcuda.so.550.163.01", ("libcuda.so.550.163.01", "libcuda.so.1")),),
    library_folder="usr/lib64",
    programs=("usr/bin/nvidia-smi",),
    control_nodes=("dev/nvidiactl",),
    socket_folders=("run/nvidia-persistenced",),
)
SPEC = cdi_spec(snapshot(gpu(0), gpu(1, mig=True, instances=(instance(3, 14, 0, 2),))), FILES, ROOT)
DEVICES = {device["name"]: device["containerEdits"]["deviceNodes"] for device in SPEC["devices"]}


def test_a_gpu_is_its_own_node_from_below_the_driver_root() -> None:
    assert DEVICES["GPU-0"] == [
        {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0", "permissions": "rw"}
    ]


def test_a_mig_device_is_its_gpu_and_its_two_capabilities() -> None:
    assert [node["path"] for node in DEVICES["MIG-3"]] == [
        "/dev/nvidia1",
        "/dev/nvidia-caps/nvidia-cap13",
        "/dev/nvidia-caps/nvidia-cap103",
    ]


def test_libraries_appear_under_the_names_programs_ask_for() -> None:
    paths = [mount["containerPath"] for mount in SPEC["containerEdits"]["mounts"]]
    assert "/usr/lib64/libcuda.so.1" in paths
    assert "/usr/bin/nvidia-smi" in paths


def test_the_same_hardware_gives_the_same_bytes() -> None:
    assert spec_bytes(SPEC) == spec_bytes(dict(reversed(list(SPEC.items()))))


def test_a_specification_is_written_once(tmp_path: Path) -> None:
    assert write_spec(tmp_path, spec_bytes(SPEC))
    assert not write_spec(tmp_path, spec_bytes(SPEC))
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_only_libraries_of_the_loaded_driver_are_taken(tmp_path: Path) -> None:
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
