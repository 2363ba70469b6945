"""The kit on the machine under test: ``run.sh``, or ``python -m hardware_kit``.

Exit code 0: success, or partial; 1: failure; 2: it could not be begun; 130: it was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from divvy.agent.nvml.process import DriverProblem
from hardware_kit.children import adopt_orphans, kill_descendants
from hardware_kit.machine import Machine, machine_from
from hardware_kit.mig import put_back
from hardware_kit.page import page, title
from hardware_kit.record import DISCLAIMER, Run
from hardware_kit.run import Conductor
from hardware_kit.settings import FOLDERS, OWNER, SOCKETS, KitSettings
from hardware_kit.steps import CATALOGUE

# Nine minutes, less the half that the last step may take to put back what it has changed.
SECONDS = 510
_LOOK_SECONDS = 100
_STATE = Path("/var/lib/divvy-hardware-kit")
_LOCK = Path("/run/divvy-hardware-kit.lock")
_FAILED, _NOT_BEGUN, _STOPPED = 1, 2, 130
_KIT = Path(__file__).resolve().parents[5]


def _refuse(reason: str) -> NoReturn:
    print(f"hardware kit: {reason}", file=sys.stderr)
    sys.exit(_NOT_BEGUN)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run.sh", description="Show on this machine with a GPU what Divvy does there."
    )
    add = parser.add_argument
    add("--mig", action="store_true", help="cut an idle GPU by MIG, and make it whole again")
    add("--short", action="store_true", help="measure for less time: for a rehearsal")
    add("--steps", help="only these, with commas: " + ",".join(step.name for step in CATALOGUE))
    add("--out", type=Path, default=Path("divvy-hardware"), help="folder for the result")
    add("--driver-root", help="where the driver is, if not below / or /run/nvidia/driver")
    add("--seconds", type=int, default=SECONDS, help="for the whole run (default %(default)s)")
    add("--state", type=Path, default=_STATE, help=argparse.SUPPRESS)
    add("--lock", type=Path, default=_LOCK, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    known = {step.name for step in CATALOGUE}
    unknown = set(_chosen(arguments)) - known
    if unknown:
        parser.error(f"there is no step {', '.join(sorted(unknown))}: {', '.join(sorted(known))}")
    return arguments


def _chosen(arguments: argparse.Namespace) -> list[str]:
    if arguments.steps is None:
        return [step.name for step in CATALOGUE]
    return [part.strip() for part in arguments.steps.split(",")]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Keep a second run out: two would measure each other."""
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            _refuse(f"another run is at work on this machine (process {file.read().strip()})")
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _place_for_result(folder: Path) -> Path:
    """Return where the result will be, before anything else is done; an earlier one is kept."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"0" * 65536)
        probe.unlink()
    except OSError as error:
        _refuse(f"the result cannot be written to {folder}: {error.strerror}; give --out=FOLDER")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return folder / f"hardware-{stamp}"


def _looked(root: str | None, scratch: Path) -> Machine:
    """Look at the machine in a process of its own: a driver may hang for ever."""
    command = [sys.executable, "-m", "hardware_kit.machine", root or "", str(scratch)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LOOK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        _refuse(f"the driver did not answer within {_LOOK_SECONDS} s")
    if done.returncode:
        last_words = done.stderr.strip().splitlines()[-1:] or ["the look at the driver failed"]
        _refuse(last_words[0])
    return machine_from(json.loads(done.stdout))


def _clear_abandoned(unpacked: Path) -> None:
    """Remove what runs have left that were killed."""
    for parent in {unpacked.parent, SOCKETS}:
        for folder in parent.glob(f"{FOLDERS}*"):
            with contextlib.suppress(OSError, ValueError):
                owner = int((folder / OWNER).read_text())
                if folder != unpacked and not Path(f"/proc/{owner}").exists():
                    shutil.rmtree(folder, ignore_errors=True)


def _write(run: Run, place: Path) -> bool:
    """Write JSON and page, and return whether they are there; else JSON goes to the terminal."""
    text = json.dumps(run.document(), indent=1, ensure_ascii=False) + "\n"
    try:
        place.with_suffix(".json").write_text(text)
        place.with_suffix(".md").write_text(page(run))
    except OSError as error:
        print(text)
        print(f"hardware kit: the result could not be written: {error}", file=sys.stderr)
        return False
    return True


def _ended(run: Run, place: Path, *, written: bool) -> int:
    print(f"\n{title(run)}\n{run.result}")
    if run.simulated:
        print(DISCLAIMER)
    if written:
        print(f"{place.with_suffix('.md')}\n{place.with_suffix('.json')}")
    if run.interrupted:
        return _STOPPED
    return 0 if written and run.result != "failure" else _FAILED


def _tell(line: str) -> None:
    # A terminal that has gone away ends no run.
    with contextlib.suppress(OSError):
        print(line, flush=True)


def _conduct(arguments: argparse.Namespace, scratch: Path, place: Path) -> int:
    began, at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    machine = _looked(arguments.driver_root, scratch)
    try:
        if uuid := put_back(Path(machine.root), arguments.state):
            _tell(f"an earlier run had left {uuid} cut by MIG: it is whole again")
            machine = _looked(arguments.driver_root, scratch)
    except (DriverProblem, OSError) as problem:
        _refuse(f"an earlier run has left a GPU cut by MIG, which cannot be put back: {problem}")
    idle = machine.idle
    gpu = "" if idle is None else idle.uuid
    answers = place.with_name(f"{place.name}-answers.json")
    settings = KitSettings(_KIT, scratch, arguments.state, machine, gpu, arguments.short, answers)
    conductor = Conductor(settings, began + arguments.seconds, _tell, mig=arguments.mig)
    conductor.listen()
    if machine.simulated:
        _tell(DISCLAIMER)
    chosen = set(_chosen(arguments))
    conductor.conduct(step for step in CATALOGUE if step.name in chosen)
    run = Run(
        machine=machine.describe(),
        kit=json.loads((_KIT / "kit.json").read_text()),
        began=at,
        seconds=time.monotonic() - began,
        steps=tuple(conductor.steps),
        options=tuple(
            option
            for option, given in (
                ("--mig", arguments.mig),
                ("--short", arguments.short),
                (f"--steps={arguments.steps}", arguments.steps is not None),
            )
            if given
        ),
        interrupted=bool(conductor.stopped),
    )
    return _ended(run, place, written=_write(run, place))


def main() -> int:
    """Run the steps; return the exit code."""
    unpacked = _KIT.parent if _KIT.parent.name.startswith(FOLDERS) else None
    try:
        arguments = _arguments()
        place = _place_for_result(arguments.out.absolute())
        with (
            _alone(arguments.lock),
            tempfile.TemporaryDirectory(prefix="run-", dir=unpacked) as scratch,
        ):
            if unpacked is not None:
                _clear_abandoned(unpacked)
            adopt_orphans()
            try:
                return _conduct(arguments, Path(scratch), place)
            finally:
                kill_descendants()
    finally:
        if unpacked is not None:
            shutil.rmtree(unpacked, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
