"""The kit as it runs on a GPU machine, rehearsed on the simulated driver."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from conformance.bare.processes import descendants
from conformance.catalogue import CATALOGUE
from conformance.check import BARE
from lab.kit.pack.__main__ import MAX_MIB, size_of
from lab.tests.kit.conftest import Bench

# Each builds nothing of the lab, but takes longer than a moment between two changes.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

SHOWS_NOTHING = "was exercised on simulated GPUs, which shows nothing"
# Whole GPUs have no MIG device that could refuse anything.
CHECKS = {check.id: check for check in CATALOGUE.values() if check.modes == BARE}
CHECKS.pop("BARE-06")
# They have been there before the kit, and fail on the lab (tests/conformance/test_bare_on_lab.py).
OLD = {f"BARE-0{number}" for number in range(1, 7)}


def test_packs_a_small_self_contained_folder(kit: Path) -> None:
    assert size_of(kit) <= MAX_MIB << 20
    assert {path.name for path in kit.iterdir()} == {"run.sh", "kit.json", "payload.tar.gz"}


def test_passes_every_check_as_simulated(bench: Bench) -> None:
    output = bench.run("--mig", packed=True)
    assert bench.outcomes == {
        check.id: ("skipped", SHOWS_NOTHING) if check.needs_hardware else ("passed", "")
        for check in CHECKS.values()
    }, output
    report = bench.report
    assert (report["mode"], report["result"]) == ("simulated", "partial")
    assert "--mig" in report["options"]
    assert report["environment"]["kit"] == bench.revision
    # The simulated driver beside itself.
    (beside,) = (check for check in report["checks"] if check["id"] == "BARE-17")
    assert {"nvml: differences: none", "cuda: differences: none"} <= {*beside["evidence"]}
    assert "MIG 1g" not in bench.driver.smi("-L")
    assert bench.left() == []
    assert {path.name for path in bench.state.iterdir()} == {"lock"}
    identities = bench.driver.smi("--query-gpu=uuid,serial", "--format=csv,noheader").split(",")
    texts = [path.read_text() for path in bench.out.iterdir() if path.suffix != ".gz"]
    assert len(texts) == 5
    assert not any(identity.strip() in text for identity in identities for text in texts)
    assert report["environment"]["stack"] == report["environment"]["nodes"][0]["name"] == "host"


def test_names_whatever_is_broken_and_checks_the_rest(bench: Bench, tmp_path: Path) -> None:
    """No hook, no simulated driver, programs that fail, and an nvidia-smi that makes things up."""
    subprocess.run(["tar", "-xzf", bench.kit / "payload.tar.gz", "-C", tmp_path], check=True)
    bench.unpacked = tmp_path / "kit"
    programs = bench.unpacked / "programs"
    (programs / "divvy-hook").unlink()
    (programs / "simulator/divvy-simd").unlink()
    for name in ("bad-access", "time-share", "real/time-share", "real/driver-calls"):
        (programs / "workloads" / name).write_text("#!/bin/sh\nexit 1\n")
    (bench.driver.root / "usr/bin/nvidia-cuda-mps-control").write_text("#!/bin/sh\nexit 1\n")
    smi = bench.driver.root / "usr/bin/nvidia-smi"
    smi.rename(smi.with_name("nvidia-smi.real"))
    made_up = "  MIG 1g.5gb      Device  0: (UUID: MIG-made-up)"
    smi.write_text(
        f'#!/bin/sh\n"$0.real" "$@"\n[ "$1" = -L ] && echo "{made_up}"\n[ "$1" != -q ]\n'
    )
    smi.chmod(0o755)
    select = ",".join(identity for identity in CHECKS if identity not in OLD)
    output = bench.run("--mig", f"--select={select},BARE-01", expect=1)
    assert {name for name, (status, _) in bench.outcomes.items() if status == "failed"} == {
        identity for identity in CHECKS if identity not in OLD
    }, output
    assert bench.outcomes["BARE-01"] == ("passed", "")
    assert "the hook is installed" in bench.outcomes["BARE-09"][1]


def test_passes_with_a_driver_in_a_folder_of_its_own(bench: Bench) -> None:
    """As on a machine of a cloud: /usr/lib has links to it, /usr/bin a script that leads there."""
    root, own = bench.driver.root, bench.driver.root / "usr/local/nvidia"
    own.mkdir(parents=True)
    (root / "usr/lib/x86_64-linux-gnu").rename(own / "lib64")
    (own / "bin").mkdir()
    for program in (root / "usr/bin").glob("nvidia-*"):
        program.rename(own / "bin" / program.name)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (root / "usr/lib" / name).symlink_to(f"/usr/local/nvidia/lib64/{name}")
    smi = root / "usr/bin/nvidia-smi"
    smi.write_text('#!/bin/sh\nexec /usr/local/nvidia/bin/nvidia-smi "$@"\n')
    smi.chmod(0o755)
    select = "BARE-02,BARE-03,BARE-07,BARE-09,BARE-10,BARE-11,BARE-12,BARE-21"
    output = bench.run(f"--select={select}")
    assert bench.outcomes == dict.fromkeys(select.split(","), ("passed", "")), output


def test_ends_a_check_in_which_the_driver_hangs(bench: Bench) -> None:
    """nvidia-smi answers but for -q, which hangs."""
    smi = bench.driver.root / "usr/bin/nvidia-smi"
    smi.rename(smi.with_name("nvidia-smi.real"))
    script = '#!/bin/sh\n[ "$1" = -q ] && exec sleep 600\nexec "$0.real" "$@"\n'
    smi.write_text(script)
    smi.chmod(0o755)
    bench.run("--select=BARE-02,BARE-07,BARE-09", expect=1)
    assert bench.outcomes == {
        "BARE-02": ("passed", ""),
        "BARE-07": ("failed", "it did not end within 30 s"),
        "BARE-09": ("passed", ""),
    }
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if _is_of(path, bench)]


def test_leaves_gpus_alone_that_others_use(bench: Bench) -> None:
    holder = bench.driver.hold(64)
    assert holder.stdout is not None
    holder.stdout.readline()
    bench.run("--select=BARE-03,BARE-05,BARE-02,BARE-10,BARE-12,BARE-18", "--mig")
    outcomes = bench.outcomes
    assert outcomes.pop("BARE-02") == ("passed", "")
    assert {status for status, _ in outcomes.values()} == {"skipped"}
    assert "no GPU is idle: GPU 0 is used by process" in outcomes["BARE-10"][1]
    assert "the GPU is used by process" in outcomes["BARE-05"][1]
    assert holder.poll() is None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_restores_the_gpu_and_reports_when_stopped(bench: Bench, number: signal.Signals) -> None:
    running = bench.start("--mig", "--select=BARE-02,BARE-19,BARE-20")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    running.send_signal(number)
    output, _ = running.communicate(timeout=100)
    assert running.returncode == 130, output
    assert "MIG 1g" not in bench.driver.smi("-L")
    stopped = ("skipped", "the run was stopped")
    assert bench.outcomes == {
        "BARE-02": ("passed", ""),
        "BARE-19": stopped,
        "BARE-20": stopped,
    }


def test_cleans_up_after_a_killed_run(bench: Bench) -> None:
    running = bench.start("--mig", "--select=BARE-19", packed=True)
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    # Its suite, too, gets no chance.
    for pid in (running.pid, *descendants(running.pid)):
        # A program of the check may just have ended.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert "MIG 1g" in bench.driver.smi("-L")
    assert bench.left() != []
    output = bench.run("--select=BARE-02", packed=True)
    assert "an earlier run had left a GPU cut by MIG: it is whole again" in output
    assert "MIG 1g" not in bench.driver.smi("-L")
    assert bench.left() == []


def test_refuses_a_second_run_at_once(bench: Bench) -> None:
    first = bench.start("--mig", "--select=BARE-19")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    assert "another run is at work" in bench.run("--select=BARE-02", expect=2)
    first.terminate()
    assert first.wait(timeout=100) == 130
    assert bench.left() == []


def test_reports_a_missing_driver(bench: Bench, tmp_path: Path) -> None:
    output = bench.run(f"--driver-root={tmp_path / 'nothing'}", expect=2)
    assert "nothing checked" in output
    reasons = {check["reason"] for check in bench.report["checks"] if check["missed"] == "not made"}
    assert {reason.partition(":")[0] for reason in reasons} == {"no NVIDIA driver on host"}


def test_refuses_an_unwritable_result_before_it_begins(bench: Bench) -> None:
    assert "--out=/proc/nowhere cannot be written to" in bench.run("--out=/proc/nowhere", expect=1)


def test_prints_a_result_that_cannot_be_written_in_the_end(bench: Bench) -> None:
    running = bench.start("--mig", "--select=BARE-18,BARE-19")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    bench.out.rmdir()
    bench.out.touch()  # as a disk that has become full meanwhile
    output, _ = running.communicate(timeout=200)
    assert running.returncode == 1, output
    assert "the report cannot be written" in output
    start = output.index("apiVersion: conformance")
    text = output[start:].partition("the report cannot")[0]
    assert [check["status"] for check in yaml.safe_load(text)["checks"]] == ["passed", "skipped"]


def test_says_what_it_needs_without_root_or_space(bench: Bench, tmp_path: Path) -> None:
    script = str(bench.kit / "run.sh")
    for folder in (bench.kit, *bench.kit.parents):
        folder.chmod(folder.stat().st_mode | 0o555)
    completed = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "sh", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, "it needs root" in completed.stderr) == (2, True)
    small = tmp_path / "small"
    small.mkdir()
    places = " ".join(f"{small}" for _ in range(5))
    full = (
        f"mount -t tmpfs -o size=1m none {small} && sed 's|/tmp /var/tmp /run /dev/shm|{places}|'"
    )
    completed = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{full} {script} | TMPDIR={small} sh"],
        cwd=bench.kit,  # a script without a path takes its payload from there
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 2
    assert "no place to unpack it" in completed.stderr
    assert f"{small} has 1 MiB" in completed.stderr


def test_runs_from_a_read_only_folder(bench: Bench, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(bench.kit, copied)
    mounted = f"mount --bind -o ro {copied} {copied} && cd {copied} && exec"
    bench.kit = copied
    command = ["env", *bench.environment, *bench.command("--select=BARE-02", packed=True)]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mounted} "$@"', "sh", *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def _is_of(environ: Path, bench: Bench) -> bool:
    """Return whether a process is of a bench's run, by the variables that it was given."""
    try:
        return f"TMPDIR={bench.temporary}\0".encode() in environ.read_bytes()
    except OSError:
        return False


def _until(met, seconds: float = 60) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.05)
