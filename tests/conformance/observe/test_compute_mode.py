"""Compute modes and MPS daemons of GPUs, as the simulated driver gives them."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conformance.implementation import DIVVY
from conformance.observe.compute_mode import let_in, script
from divvy.agent.mps.version_3 import Version3
from lab.driver_clients.driver_root import DriverRoot, eventually

SCRIPT = script(DIVVY.mps_pipes)
SOUND = "compute mode Default"
BY_MPS = f"{SOUND}; by MPS Exclusive_Process and a daemon that answers"
RunScript = Callable[[str], Any]


def test_names_a_gpu_that_admits_one_process(driver: DriverRoot, run_script: RunScript) -> None:
    driver.install("T4", 2)
    modes = run_script(SCRIPT)
    assert let_in(modes, (False, False)) == (SOUND, SOUND)
    driver.smi("-i", "1", "-c", "EXCLUSIVE_PROCESS")
    modes = run_script(SCRIPT)
    assert let_in(modes, (False, False)) == (SOUND, f"{list(modes)[1]}: Exclusive_Process")


def test_accepts_a_driver_without_compute_modes() -> None:
    assert let_in({"GPU-a": (None, "none")}, [False]) == (SOUND, SOUND)
    assert let_in({"GPU-a": ("Unknown Error", "none")}, [False])[1] == "GPU-a: Unknown Error"


def test_judges_each_gpu_by_its_place_when_another_is_lost(
    driver: DriverRoot, run_script: RunScript
) -> None:
    driver.install("T4", 2)
    _, second = run_script(SCRIPT)
    driver.smi("-i", "1", "-c", "EXCLUSIVE_PROCESS")
    driver.sim("fault", "lost", "0")
    seen = let_in(run_script(SCRIPT), (False, True))[1]
    assert seen == f"GPU 0: GPU is lost; {second}: its MPS daemon: none"


def test_judges_no_gpu_by_its_place_when_the_driver_lists_fewer() -> None:
    verdict = let_in({"GPU-b": (3, "answers")}, (False, True))
    assert verdict == ("2 GPUs", "the driver lists 1 GPUs (see NODE-01)")
    assert let_in({}, [False]) == ("1 GPUs", "the driver lists 0 GPUs (see NODE-01)")


@contextmanager
def daemon(
    driver: DriverRoot, uuid: str, state: Path, *options: str
) -> Iterator[subprocess.Popen[bytes]]:
    pipes = state / "mps" / uuid / "pipe"
    pipes.mkdir(parents=True)
    environment = {
        **os.environ,
        "CUDA_MPS_PIPE_DIRECTORY": str(pipes),
        "CUDA_MPS_LOG_DIRECTORY": str(state),
    }
    program = str(driver.root / "usr/bin/nvidia-cuda-mps-control")
    started = subprocess.Popen([program, "-f", *options], env=environment)
    try:
        assert eventually(lambda: (pipes / "nvidia-cuda-mps-control.pid").exists())
        yield started
    finally:
        started.kill()
        started.wait()


def test_names_a_gpu_by_mps_with_a_wrong_mode_or_daemon(
    driver: DriverRoot, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.install("T4", 1)
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("DIVVY_STATE_FOLDER", folder)
        (uuid,) = run_script(SCRIPT)
        assert let_in(run_script(SCRIPT), [True]) == (BY_MPS, f"{uuid}: Default")
        driver.smi("-c", "EXCLUSIVE_PROCESS")
        assert let_in(run_script(SCRIPT), [True])[1] == f"{uuid}: its MPS daemon: none"
        with daemon(driver, uuid, Path(folder)) as running:
            assert let_in(run_script(SCRIPT), [True]) == (BY_MPS, BY_MPS)
            running.send_signal(signal.SIGSTOP)
            wedged = let_in(run_script(SCRIPT), [True])[1]
            assert wedged == f"{uuid}: its MPS daemon: TimeoutExpired"
        dead = let_in(run_script(SCRIPT), [True])[1]
        assert dead == f"{uuid}: its MPS daemon: Cannot find MPS control daemon process"


def test_asks_a_daemon_of_version_3_in_its_words(
    driver: DriverRoot, run_script: RunScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver.install("T4", 1, "615.71.09")
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setenv("DIVVY_STATE_FOLDER", folder)
        (uuid,) = run_script(SCRIPT)
        driver.smi("-c", "EXCLUSIVE_PROCESS")
        with daemon(driver, uuid, Path(folder), *Version3.OPTIONS) as running:
            assert let_in(run_script(SCRIPT), [True]) == (BY_MPS, BY_MPS)
            running.send_signal(signal.SIGSTOP)
            wedged = let_in(run_script(SCRIPT), [True])[1]
            assert wedged == f"{uuid}: its MPS daemon: TimeoutExpired"
