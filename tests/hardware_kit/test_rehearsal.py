"""The kit as it runs on a GPU machine, rehearsed on the simulated driver."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from hardware_kit.children import descendants
from hardware_kit.pack.__main__ import MAX_MIB, size_of
from hardware_kit.record import read_run
from hardware_kit.steps import CATALOGUE
from tests.hardware_kit.conftest import Bench

# Each builds nothing of the lab, but takes longer than a moment between two changes.
pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


def test_packs_a_small_self_contained_folder(kit: Path) -> None:
    assert size_of(kit) <= MAX_MIB << 20
    assert {path.name for path in kit.iterdir()} == {"run.sh", "kit.json", "payload.tar.gz"}


def test_passes_every_step_as_simulated(bench: Bench) -> None:
    said = bench.run("--short", "--mig", packed=True)
    run = bench.record
    assert {step.name: step.status for step in run.steps} == {
        each.name: "passed" for each in CATALOGUE
    }, said
    assert (run.simulated, run.result, run.options) == (True, "partial", ("--mig", "--short"))
    (page,) = bench.out.glob("*.md")
    titles = [line for line in page.read_text().splitlines() if line.startswith("#")]
    assert len(titles) == 1 + len(CATALOGUE)
    assert all("SIMULATED" in line for line in titles)
    # The simulated driver beside itself.
    differing = [
        table.rows for step in run.steps for table in step.tables if "differences" in table.title
    ]
    assert differing == [(), ()]
    assert "MIG 1g" not in bench.driver.smi("-L")
    assert bench.left() == []
    assert not (bench.folder / "state").exists()
    identities = bench.driver.smi("--query-gpu=uuid,serial", "--format=csv,noheader").split(",")
    texts = [path.read_text() for path in bench.out.iterdir()]
    assert len(texts) == 3
    assert not any(identity.strip() in text for identity in identities for text in texts)


def test_fails_only_its_steps_when_a_driver_hangs(bench: Bench) -> None:
    """nvidia-smi answers but for -q, which hangs; a program is missing beside it."""
    smi = bench.driver.root / "usr/bin/nvidia-smi"
    smi.rename(smi.with_name("nvidia-smi.real"))
    script = '#!/bin/sh\n[ "$1" = -q ] && exec sleep 600\nexec "$0.real" "$@"\n'
    smi.write_text(script)
    smi.chmod(0o755)
    bench.run("--steps=discovery,labels,cdi", "--seconds=60", expect=1)
    labels = next(step for step in bench.record.steps if step.name == "labels")
    assert labels.status == "failed"
    assert labels.reason.startswith("it did not end within 30 s")
    others = [step.status for step in bench.record.steps if step.name != "labels"]
    assert others == ["passed", "passed"]
    assert not [path for path in Path("/proc").glob("[0-9]*/environ") if _is_of(path, bench)]


def test_fails_only_its_step_when_a_program_is_missing(bench: Bench, tmp_path: Path) -> None:
    """The kit, unpacked, without its hook and without the program that breaks."""
    subprocess.run(["tar", "-xzf", bench.kit / "payload.tar.gz", "-C", tmp_path], check=True)
    (tmp_path / "kit/programs/divvy-hook").unlink()
    (tmp_path / "kit/programs/workloads/bad-access").unlink()
    bench.unpacked = tmp_path / "kit"
    bench.run("--steps=discovery,cdi,hook,health,labels", expect=1)
    status = {step.name: (step.status, step.reason) for step in bench.record.steps}
    assert status["discovery"] == status["labels"] == ("passed", "")
    assert "the hook is installed" in status["cdi"][1]
    assert status["hook"][0] == status["health"][0] == "failed"
    assert "bad-access" in status["health"][1]


def test_leaves_gpus_alone_that_others_use(bench: Bench) -> None:
    holder = bench.driver.hold(64)
    assert holder.stdout is not None
    holder.stdout.readline()
    bench.run("--short", "--steps=discovery,hook,limiter-memory,mig", "--mig")
    assert [step.status for step in bench.record.steps] == ["passed", *["not made"] * 3]
    assert "no GPU is idle: GPU 0 is used by process" in bench.record.steps[1].reason
    assert holder.poll() is None


def test_skips_what_the_time_of_a_run_does_not_allow(bench: Bench) -> None:
    bench.run("--seconds=0", "--steps=discovery,labels")
    told = {(step.status, step.reason) for step in bench.record.steps}
    assert told == {("not made", "the time of the run was up")}


def test_leaves_a_machine_alone_on_which_others_work(bench: Bench) -> None:
    """One of two GPUs is used: what would work on both is not made."""
    bench.driver.stop()
    bench.driver.install("T4", 2)
    holder = bench.driver.hold(64)
    assert holder.stdout is not None
    holder.stdout.readline()
    bench.run("--steps=discovery,bare")
    assert [step.status for step in bench.record.steps] == ["passed", "not made"]
    assert "some are used: GPU 0 by process" in bench.record.steps[1].reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_restores_the_gpu_and_reports_when_stopped(bench: Bench, number: signal.Signals) -> None:
    running = bench.start("--mig", "--steps=discovery,mig-neighbours")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    running.send_signal(number)
    said, _ = running.communicate(timeout=100)
    assert running.returncode == 130, said
    assert "MIG 1g" not in bench.driver.smi("-L")
    assert [step.status for step in bench.record.steps] == ["passed", "failed"]
    assert bench.record.steps[1].reason.startswith(f"the run was stopped ({number.name})")
    assert bench.document["interrupted"] is True


def test_cleans_up_after_a_killed_run(bench: Bench) -> None:
    running = bench.start("--mig", "--steps=mig-neighbours", packed=True)
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    # Its step, too, gets no chance.
    for pid in (running.pid, *descendants(running.pid)):
        os.kill(pid, signal.SIGKILL)
    running.communicate(timeout=60)
    assert "MIG 1g" in bench.driver.smi("-L")
    assert bench.left() != []
    said = bench.run("--steps=discovery", packed=True)
    assert "cut by MIG: it is whole again" in said
    assert "MIG 1g" not in bench.driver.smi("-L")
    assert bench.left() == []


def test_refuses_a_second_run_at_once(bench: Bench) -> None:
    first = bench.start("--mig", "--short", "--steps=mig-neighbours")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    assert "another run is at work" in bench.run("--steps=discovery", expect=2)
    first.terminate()
    assert first.wait(timeout=100) == 130
    assert bench.left() == []


def test_reports_a_missing_or_failing_driver(bench: Bench, tmp_path: Path) -> None:
    said = bench.run(f"--driver-root={tmp_path / 'nothing'}", expect=2)
    assert "no NVIDIA driver: libnvidia-ml.so.1 is not below" in said
    (bench.driver.root / "usr/bin/nvidia-smi").write_text(
        "#!/bin/sh\necho Failed to talk; exit 9\n"
    )
    assert "nvidia-smi exited with 9: Failed to talk" in bench.run(expect=2)


def test_refuses_an_unwritable_result_before_it_begins(bench: Bench) -> None:
    said = bench.run("--out=/proc/nowhere", expect=2)
    assert "the result cannot be written to /proc/nowhere" in said


def test_prints_a_result_that_cannot_be_written_in_the_end(bench: Bench) -> None:
    running = bench.start("--short", "--mig", "--steps=mig-neighbours")
    _until(lambda: "MIG 1g" in bench.driver.smi("-L"))
    bench.out.rmdir()
    bench.out.touch()  # as a disk that has become full meanwhile
    said, _ = running.communicate(timeout=200)
    assert running.returncode == 1, said
    assert "the result could not be written" in said
    start = said.index("\n{\n")
    run = read_run(json.JSONDecoder().raw_decode(said[start + 1 :])[0])
    assert [step.status for step in run.steps] == ["passed"]


def test_says_what_it_needs_without_root_or_space(bench: Bench, tmp_path: Path) -> None:
    script = str(bench.kit / "run.sh")
    for folder in (bench.kit, *bench.kit.parents):
        folder.chmod(folder.stat().st_mode | 0o555)
    told = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", "sh", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, "it needs root" in told.stderr) == (2, True)
    small = tmp_path / "small"
    small.mkdir()
    places = " ".join(f"{small}" for _ in range(5))
    full = (
        f"mount -t tmpfs -o size=1m none {small} && sed 's|/tmp /var/tmp /run /dev/shm|{places}|'"
    )
    told = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{full} {script} | TMPDIR={small} sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "no place to unpack it" in told.stderr
    assert f"{small} has 1 MiB" in told.stderr


def test_runs_from_a_read_only_folder(bench: Bench, tmp_path: Path) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(bench.kit, copied)
    mounted = f"mount --bind -o ro {copied} {copied} && cd {copied} && exec"
    bench.kit = copied
    command = bench.command("--steps=discovery", packed=True)
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
