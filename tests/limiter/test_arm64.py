"""The limiter for arm64: its own tests again, with libraries and programs of arm64 under QEMU.

The driver's daemon is this machine's: what is tested runs in tenants' processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from lab.cluster.images import BASE_ARM64
from lab.cluster.paths import REPOSITORY
from lab.cluster.simulated_driver import BUILT_LIBRARIES, PROGRAMS, SOURCE, build
from lab.target import ARM64_CC
from tests.image_layers import unpack
from tests.limiter.tenant import LIMITER

pytestmark = pytest.mark.lab
FILES = ("test_memory.py", "test_memory_kept.py", "test_oversubscription.py", "test_nvml.py")
FILES += ("test_graph_memory.py", "test_gate.py", "test_streams.py", "test_forks.py")
FILES += ("test_library.py", "test_share_text.py", "test_images.py")
# The kernel cannot run a program of arm64 that an emulated one starts.
LEFT_OUT = ("keeps_charging_a_child_after_its_parent",)
# The daemon of this machine sees the emulator's name.
LEFT_OUT += ("shows_the_share_in_nvidia_smi",)
# What measures time says nothing under the emulator.
LEFT_OUT += ("shares_that_burn", "long_and_short_kernels", "lone_tenant", "tenant_alone_again")
LEFT_OUT += ("two_processes_as_one", "returning_tenant", "lying_page", "killed_in_its_turn")
LEFT_OUT += ("killed_while_waiting",)
# QEMU 7 keeps 3.5 MiB for each 600 MiB that was ever mapped (3.5 GiB after 1,000), and here
# each allocation of a graph is such a mapping: 200,000 would take all memory of the machine.
LEFT_OUT += ("admits_no_allocation_past_the_limit_during_captures",)


def make(folder: Path, target: Path, *goals: str) -> Path:
    command = ["make", "--silent", f"--jobs={os.cpu_count()}", "-C", str(folder)]
    subprocess.run([*command, f"BUILD={target}", f"CC={ARM64_CC}", *goals], check=True)
    return target


def make_driver(folder: Path) -> Path:
    """Build what tenants' processes load and run for arm64, beside this machine's daemon."""
    for_arm64 = (*BUILT_LIBRARIES, "nvidia-smi")
    cross = folder / "cross"
    make(SOURCE, cross, *(str(cross / name) for name in for_arm64))
    mixed, native = folder / "mixed", build()
    mixed.mkdir()
    for name in (*BUILT_LIBRARIES, *PROGRAMS):
        shutil.copy((cross if name in for_arm64 else native) / name, mixed)
    return mixed


def test_passes_its_tests_on_arm64(tmp_path: Path) -> None:
    BASE_ARM64.build()  # set-up has done so
    environment = {
        "PATH": os.environ["PATH"],
        "DIVVY_ARM64_ROOT": str(unpack(BASE_ARM64.layout, tmp_path / "root")),
        "DIVVY_LIMITER_BUILD": str(make(LIMITER, tmp_path / "limiter")),
        "DIVVY_SIMULATOR_BUILD": str(make_driver(tmp_path)),
        # Some scripts of tenants import test modules, and these pytest.
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), sysconfig.get_path("purelib")]),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-x"]
    command += ["-k", f"not ({' or '.join(LEFT_OUT)})"]
    command += [str(Path(__file__).with_name(name)) for name in FILES]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
