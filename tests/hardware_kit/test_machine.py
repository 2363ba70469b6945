"""Where the kit finds a driver, and which GPU it may use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hardware_kit import machine
from hardware_kit.machine import Gpu, Machine, NoDriver, look

SMI = """\
#!/bin/sh
[ "$LD_LIBRARY_PATH" = "{folder}" ] || exit 3
case $1 in
--query-gpu=index,*) echo "0, GPU-1, NVIDIA X, 1000, {used}, [N/A], Default" ;;
--query-gpu=driver_version) echo 580.1 ;;
--query-compute-apps=*) {apps} ;;
esac
"""
IDLE = Gpu(0, "GPU-1", "NVIDIA X", 1000, "N/A", "Default", ())


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the place of a driver that is below no driver root: as clouds mount it."""
    driver = tmp_path / "nvidia"
    for name in ("bin", "lib64"):
        (driver / name).mkdir(parents=True)
    (driver / "lib64/libnvidia-ml.so.1").write_bytes(b"a library")
    monkeypatch.setattr(machine, "_ROOTS", ())
    monkeypatch.setattr(machine, "_OTHER_FOLDERS", (str(driver / "lib64"),))
    return driver


def looked(driver: Path, scratch: Path, used: int = 10, apps: str = "true") -> Machine:
    root = scratch / "driver-root"
    folder = root / "usr/lib/x86_64-linux-gnu"
    program = driver / "bin/nvidia-smi"
    program.write_text(SMI.format(folder=folder, used=used, apps=apps))
    program.chmod(0o755)
    scratch.mkdir(exist_ok=True)
    return look(None, scratch)


def test_links_a_driver_elsewhere_into_a_root(elsewhere: Path, tmp_path: Path) -> None:
    found = looked(elsewhere, tmp_path / "scratch")
    root = Path(found.root)
    assert (found.driver, found.simulated, found.gpus) == ("580.1", False, (IDLE,))
    assert (root / "usr/lib/x86_64-linux-gnu").readlink() == elsewhere / "lib64"
    assert [(root / name).readlink() for name in ("dev", "proc")] == [Path("/dev"), Path("/proc")]
    assert found.idle == IDLE


def test_names_who_uses_a_gpu(elsewhere: Path, tmp_path: Path) -> None:
    apps = 'echo "GPU-1, 77, /usr/bin/train"'
    found = looked(elsewhere, tmp_path / "scratch", apps=apps)
    assert (found.gpus[0].users, found.idle) == (("process 77 (train)",), None)


def test_counts_unowned_memory_as_use(elsewhere: Path, tmp_path: Path) -> None:
    """In a container nvidia-smi names no process of another one."""
    found = looked(elsewhere, tmp_path / "scratch", used=3000)
    assert found.gpus[0].users == ("something that nvidia-smi does not name, with 3000 MiB",)


def test_counts_a_gpu_in_mig_mode_as_not_idle(elsewhere: Path, tmp_path: Path) -> None:
    found = looked(elsewhere, tmp_path / "scratch")
    cut = replace(IDLE, mig="Enabled")
    assert replace(found, gpus=(cut,)).idle is None
    assert replace(found, gpus=(cut, IDLE)).idle == IDLE


@pytest.mark.usefixtures("elsewhere")
def test_reports_a_driver_without_nvidia_smi(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(NoDriver, match="nvidia-smi is missing"):
        look(None, scratch)


def test_records_no_identity_of_the_machine(elsewhere: Path, tmp_path: Path) -> None:
    told = looked(elsewhere, tmp_path / "scratch").describe()
    assert told["gpus"] == ["1 × NVIDIA X"]
    assert "GPU-1" not in str(told)
    assert str(tmp_path) not in str(told)
