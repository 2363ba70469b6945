"""Who uses the GPUs of a host, by what nvidia-smi prints, and which of them is idle."""

from __future__ import annotations

from dataclasses import replace

from conformance.bare.gpus import Gpu, idle_gpu, read_gpus, why_none_is_idle

IDLE = Gpu(0, "GPU-1", "NVIDIA X", 1000, "N/A", ())


def read(used: int = 10, apps: str = "") -> Gpu:
    (gpu,) = read_gpus(f"0, GPU-1, NVIDIA X, 1000, {used}, [N/A]\n", apps)
    return gpu


def test_names_who_uses_a_gpu() -> None:
    assert read() == IDLE
    used = read(apps="GPU-1, 77, /usr/bin/train\nGPU-2, 78, other\n")
    assert used.users == ("process 77 (train)",)
    assert idle_gpu([used]) is None
    assert why_none_is_idle([used]) == "no GPU is idle: GPU 0 is used by process 77 (train)"


def test_counts_unowned_memory_as_use() -> None:
    """In a container nvidia-smi names no process of another one."""
    assert read(3000).users == ("something that nvidia-smi does not name, with 3000 MiB",)


def test_counts_a_gpu_in_mig_mode_as_not_idle() -> None:
    cut = replace(IDLE, mig="Enabled")
    assert idle_gpu([cut]) is None
    assert why_none_is_idle([cut]) == "no GPU is idle: GPU 0 is in MIG mode"
    assert idle_gpu([cut, IDLE]) == IDLE
