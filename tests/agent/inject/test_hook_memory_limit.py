"""The hook has the driver limit a container's memory before its process starts, or it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.driver_clients.control_groups import control_group, hierarchy, start_within
from lab.driver_clients.driver_root import eventually
from tests.agent.inject.bundle import SOURCE, administrator

UUID, OTHER = "GPU-0f5d8c9e-0000-4000-8000-000000000001", "GPU-0f5d8c9e-0000-4000-8000-000000000002"
LIMITS = "/usr/lib/divvy/share/limits"
MIB = 1 << 20
pytestmark = administrator


def line(uuid: str = UUID, mib: int = 4096) -> str:
    page = "page - oversubscribed no"
    return f"device {uuid} memory {mib * MIB} compute free weight 25 {page}\n"


@dataclass
class Limited:
    """A container of one process in a group of its own, and an nvidia-smi that notes its calls."""

    folder: Path
    program: Path
    group: Path
    pid: int
    before: tuple[str, ...] = ()
    """What a runtime runs the hook by."""

    def smi(self, code: int = 0) -> Path:
        program = self.folder / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\necho "$LD_PRELOAD: $*" >> {self.folder}/calls\necho said; exit {code}\n'
        )
        program.chmod(0o755)
        return program

    def script(self, text: str) -> None:
        (self.folder / "nvidia-smi").write_text(f"#!/bin/sh\n{text}\n")

    def limits(self, text: str) -> Path:
        file = self.folder / "shares/mine/limits"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"divvy-share 1\n{text}")
        return file

    def call(self, *sources: Path, **changed: Path) -> subprocess.CompletedProcess[str]:
        bundle = self.folder / "bundle"
        bundle.mkdir(exist_ok=True)
        mounts = [{"destination": LIMITS, "source": str(source)} for source in sources]
        specification = {"root": {"path": "rootfs"}, "process": {"env": []}, "mounts": mounts}
        (bundle / "config.json").write_text(json.dumps(specification))
        folders = {
            "smi": self.folder / "nvidia-smi",
            "library": self.folder / "lib/libnvidia-ml.so.1",
            "shares": self.folder / "shares",
            "groups": hierarchy(),
            **changed,
        }
        options = [f"--{name}={place}" for name, place in folders.items()]
        return subprocess.run(
            [*self.before, str(self.program), *options],
            input=json.dumps({"bundle": str(bundle), "id": "x", "pid": self.pid}),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    @property
    def calls(self) -> list[str]:
        noted = self.folder / "calls"
        return noted.read_text().splitlines() if noted.exists() else []


@pytest.fixture
def limited(sanitized: Path, tmp_path: Path) -> Iterator[Limited]:
    with control_group() as group:
        process = start_within(group / "below", "sleep", "60", wait=True)
        limited = Limited(tmp_path, sanitized / "divvy-hook", group / "below", process.pid)
        limited.smi()
        (tmp_path / "lib").mkdir()
        command = ["cc", "-shared", "-xc", "/dev/null", "-o", tmp_path / "lib/libnvidia-ml.so.1"]
        subprocess.run(command, check=True)
        # Of another system: by the folder's name, no program of this one would start.
        (tmp_path / "lib/libc.so.6").write_text("of another system")
        yield limited
        process.kill()
        process.communicate()


def test_limits_each_gpu_of_a_share_in_the_containers_own_group(limited: Limited) -> None:
    file = limited.limits(line() + line(OTHER, 1000))
    done = limited.call(file)
    assert (done.returncode, done.stderr) == (0, "said\nsaid\n")
    options = f"memory-limits --set -n {limited.group} --soft-limit 0 --hard-limit"
    assert limited.calls == [
        f"{limited.folder}/lib/libnvidia-ml.so.1: {options} 4096 -i {UUID}",
        f"{limited.folder}/lib/libnvidia-ml.so.1: {options} 1000 -i {OTHER}",
    ]


def test_keeps_a_container_from_starting_when_the_driver_refuses(limited: Limited) -> None:
    limited.smi(code=3)
    done = limited.call(limited.limits(line()))
    assert done.returncode == 1
    assert f"the driver does not limit the memory of GPU {UUID}" in done.stderr
    missing = limited.call(limited.limits(line()), smi=limited.folder / "nowhere")
    assert missing.returncode == 1
    assert "cannot run" in missing.stderr


def test_without_the_shares_own_limits_nothing_starts(limited: Limited) -> None:
    own = limited.limits(line())
    foreign = limited.folder / "limits"
    foreign.write_text(own.read_text())
    out = limited.folder / "shares/../limits"
    for sources in ((), (foreign,), (own, foreign), (out,), (limited.folder / "shares-2/limits",)):
        done = limited.call(*sources)
        assert done.returncode == 1
        assert "not the share's limits" in done.stderr
    assert limited.calls == []
    assert limited.call(own, own).returncode == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        line(mib=0),
        line(mib=-4096),
        line(mib=2**44),
        line(mib=2**80),
        line().rstrip("\n"),
        "device -i memory 4294967296 compute free\n",
        "device a;b memory 1\n",
        "x\n",
    ],
)
def test_sets_no_limit_from_a_file_of_another_kind(limited: Limited, text: str) -> None:
    done = limited.call(limited.limits(text))
    assert done.returncode == 1
    assert "are not set" in done.stderr
    assert limited.calls == []


def test_follows_no_link_in_place_of_the_limits(limited: Limited) -> None:
    file = limited.limits(line())
    file.rename(file.with_name("other"))
    file.symlink_to("other")
    assert limited.call(file).returncode == 1
    assert limited.calls == []


def test_never_limits_the_group_of_the_whole_node(limited: Limited) -> None:
    limited.pid = 2**22 + 1  # of no process
    done = limited.call(limited.limits(line()))
    assert (done.returncode, limited.calls) == (1, [])
    assert "no control group of its own" in done.stderr


@pytest.mark.parametrize("above", [False, True], ids=["the same", "above it"])
def test_never_limits_the_group_of_the_runtime(limited: Limited, above: bool) -> None:
    """A runtime without control groups of its own leaves containers in the group it has itself."""
    group = limited.group / "runtime" if above else limited.group
    group.mkdir(exist_ok=True)
    limited.before = ("sh", "-c", f'echo 0 > {group}/cgroup.procs && exec "$@"', "sh")
    done = limited.call(limited.limits(line()))
    if above:
        assert eventually(lambda: _is_removed(group))
    assert (done.returncode, limited.calls) == (1, [])
    assert "no control group of its own" in done.stderr


def test_limits_no_group_outside_the_runtimes_view(limited: Limited) -> None:
    """In a namespace of groups the kernel names those beside it by "..", which leads elsewhere."""
    group = limited.group.parent / "runtime"
    group.mkdir()
    script = f'echo 0 > {group}/cgroup.procs && exec unshare --cgroup "$@"'
    limited.before = ("sh", "-c", script, "sh")
    done = limited.call(limited.limits(line()))
    assert eventually(lambda: _is_removed(group))
    assert (done.returncode, limited.calls) == (1, [])
    assert "no control group of its own" in done.stderr


def _is_removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def test_control_groups_of_version_1_are_refused(limited: Limited) -> None:
    done = limited.call(limited.limits(line()), groups=Path("/tmp"))
    assert (done.returncode, limited.calls) == (1, [])
    assert "not version 2 of the control groups" in done.stderr


@pytest.fixture(scope="module")
def impatient(sanitized: Path) -> Path:
    """Build a hook that gives the driver up soon."""
    quick = sanitized / "impatient"
    command = ["make", "--silent", "-C", SOURCE, f"BUILD={quick}", "CFLAGS=-DDIVVY_SMI_SECONDS=3"]
    subprocess.run(command, check=True)
    return quick / "divvy-hook"


@pytest.mark.parametrize("hanging", ["exec sleep 300", "exec >&- 2>&-; exec sleep 300", "exec yes"])
def test_returns_in_time_when_the_driver_hangs(
    limited: Limited, impatient: Path, hanging: str
) -> None:
    """A runtime waits until the hook's output is closed everywhere: call does so, too."""
    limited.program = impatient
    limited.script(f"echo $$ >> {limited.folder}/calls; {hanging}")
    done = limited.call(limited.limits(line() + line(OTHER)))
    assert done.returncode == 1
    assert "nvidia-smi did not end within 3 s" in done.stderr
    (pid,) = limited.calls
    assert eventually(lambda: _is_ended(Path("/proc") / pid))


def _is_ended(process: Path) -> bool:
    # What is ended and not waited for yet has no command line.
    return not process.exists() or not (process / "cmdline").read_bytes()


def test_waits_for_no_process_that_nvidia_smi_leaves(limited: Limited) -> None:
    limited.script(f"sleep 60 & echo $! > {limited.folder}/calls; echo said")
    done = limited.call(limited.limits(line()))
    assert (done.returncode, done.stderr) == (0, "said\n")
    os.kill(int(limited.calls[0]), signal.SIGKILL)


def test_reports_the_first_line_of_a_talkative_driver(limited: Limited) -> None:
    limited.script("echo first; yes | head -c 8000000; exit 3")
    done = limited.call(limited.limits(line()))
    assert done.returncode == 1
    assert done.stderr.startswith("first\n")
    assert "the driver does not limit the memory" in done.stderr
    assert len(done.stderr) < 4096
