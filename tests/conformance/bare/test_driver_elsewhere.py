"""A driver that lies below no driver root."""

from pathlib import Path

from conformance.bare.driver_elsewhere import linked_root


def test_links_a_driver_elsewhere_into_a_root(tmp_path: Path) -> None:
    driver = tmp_path / "nvidia"
    for name in ("bin", "lib64"):
        (driver / name).mkdir(parents=True)
    (driver / "lib64/libnvidia-ml.so.1").write_bytes(b"a library")
    (driver / "bin/nvidia-smi").write_text("#!/bin/sh\n")
    (driver / "bin/nvidia-smi").chmod(0o755)
    root = linked_root(tmp_path, [str(tmp_path / "none"), str(driver / "lib64")])
    assert root is not None
    assert (root / "usr/lib/x86_64-linux-gnu").readlink() == driver / "lib64"
    assert (root / "usr/bin/nvidia-smi").readlink() == driver / "bin/nvidia-smi"
    assert [(root / name).readlink() for name in ("dev", "proc")] == [Path("/dev"), Path("/proc")]


def test_finds_no_driver_if_there_is_none(tmp_path: Path) -> None:
    assert linked_root(tmp_path, [str(tmp_path)]) is None
