"""Run parts of the suite at the same time: `python -m tests.lanes -m EXPRESSION -m EXPRESSION`.

What `--first` names runs before all others, and ends the run if it fails: most mistakes show there.

What shares the lab mostly waits for kubelets, what runs an agent waits for that, each one test
after the other; all else can run meanwhile. That is the first expression's, and gives way to the
others: they take longest although they have less to compute.
Reports come one after the other, each as it grows, in the order of the expressions.

Of tests that share a lab, a part can have a second one: `--second-lab EXPRESSION`.

Two cores carry all of them, so a test with a deadline can miss it because of its neighbours.
`--at-once` limits how many lanes run; the next one starts when one of them ends. What failed runs
once more, alone; the failure stays in the output, and the last lines name every test
that needed its second run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import yaml

from lab.cluster.paths import REPOSITORY
from tests.continued import VARIABLE

_PERIOD = 0.1
_GIVES_WAY = 5
"""By so much is the first lane nicer: it still has a quarter of a core that others want, too."""
_TESTS_FAILED, _INTERRUPTED = 1, 2
"""Pytest's exit codes when it ran to its end and a test failed, and when it was interrupted."""
_BROKEN = 3
"""As many failures of tests that run alone are a broken change, not busy cores."""
_SECOND_LAB_NAME = "second"
_SECOND_LAB = {
    "network": "10.144.0.0/16",
    "ports": {"apiServer": 16844, "etcd": 12844, "registry": 15844},
}
"""What a second lab cannot have in common with the first (`divvy:lab` of a stack file)."""


def run(commands: Sequence[Sequence[str]], at_once: int | None = None) -> list[int]:
    """Run commands, print what they write in their order; return their exit codes.

    `at_once` of them run at the same time, all of them without it. SIGINT and SIGTERM reach each
    running command once, as SIGINT, so that pytest takes down what it has up; no other one starts,
    and all count as interrupted, also those that had just ended. An error ends them likewise.
    """
    interrupts: list[int] = []
    with tempfile.TemporaryDirectory(prefix="divvy-tests-") as folder, ExitStack() as stack:
        paths = [Path(folder) / str(number) for number in range(len(commands))]
        outputs = [stack.enter_context(path.open("wb")) for path in paths]
        reports = [stack.enter_context(path.open("rb")) for path in paths]
        processes: list[subprocess.Popen[bytes]] = []
        left_to_start = len(commands)
        printed = passed_on = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.signal(number, lambda number, _frame: interrupts.append(number))
            stack.callback(signal.signal, number, before)
        stack.callback(_end, processes)
        while printed < len(processes) or left_to_start:
            running = [process for process in processes if process.poll() is None]
            if len(interrupts) > passed_on:
                passed_on += 1
                left_to_start = 0
                for process in running:
                    process.send_signal(signal.SIGINT)
            elif left_to_start and len(running) < (at_once or len(commands)):
                number = len(processes)
                niceness = _GIVES_WAY if number == 0 and len(commands) > 1 else 0
                processes.append(_start(commands[number], outputs[number], niceness))
                left_to_start -= 1
                continue
            while printed < len(processes):
                shutil.copyfileobj(reports[printed], sys.stdout.buffer)
                if processes[printed] in running:
                    break
                printed += 1
            sys.stdout.buffer.flush()
            time.sleep(_PERIOD)
    if interrupts:
        return [_INTERRUPTED] * len(commands)
    return [process.returncode for process in processes]


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let what still runs take down what it has up."""
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in processes:
        process.wait()


def _start(command: Sequence[str], output: BinaryIO, niceness: int) -> subprocess.Popen[bytes]:
    # A group of its own: a terminal's Ctrl-C comes from here, once, and not from both.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        process_group=0,
        preexec_fn=partial(_begin, niceness),
    )


def _begin(niceness: int) -> None:
    os.nice(niceness)
    # Without job control a shell's background jobs ignore them, and so would their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> int:
    """Run pytest once for each mark expression, and what failed there once more, alone."""
    parser = argparse.ArgumentParser(prog="tests.lanes")
    parser.add_argument("-m", action="append", required=True, metavar="EXPRESSION")
    parser.add_argument(
        "--first", action="append", default=[], metavar="EXPRESSION", help="runs before all others"
    )
    parser.add_argument(
        "--second-lab", metavar="EXPRESSION", help="runs beside them, on a second lab"
    )
    parser.add_argument("--at-once", type=int, metavar="LANES", help="all, without it")
    # One that hangs fails with its stack; without a limit it would take the whole run with it.
    parser.add_argument("--timeout", default=900, metavar="SECONDS", help="for each test")
    arguments = parser.parse_args()
    if arguments.at_once is not None and arguments.at_once < 1:
        parser.error(f"--at-once: {arguments.at_once} lanes run nothing; give 1 or more")
    if arguments.second_lab and os.environ.get("DIVVY_LAB") == _SECOND_LAB_NAME:
        parser.error(f"DIVVY_LAB is {_SECOND_LAB_NAME}, the second lab's name: choose another")
    # What an interrupted lane has left in its buffer is worth reading.
    os.environ["PYTHONUNBUFFERED"] = "1"
    # Where it is set, as in many images, each of some thousand processes compiles what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory(prefix="divvy-lanes-") as folder:
        first = [[*_pytest(arguments.timeout), "-m", marks] for marks in arguments.first]
        if failed_first := [code for code in run(first) if code]:
            return failed_first[0]
        parts: list[tuple[list[str], str]] = [([], expression) for expression in arguments.m]
        if arguments.second_lab:
            variables = _second_lab(Path(folder) / "Pulumi.lab.yaml")
            # It takes long, so it does not wait until another lane has ended.
            parts.insert(1, (["env", *variables], arguments.second_lab))
        caches = [Path(folder) / str(number) for number in range(len(parts))]
        lanes = [
            [*prefix, *_pytest(arguments.timeout), "-o", f"cache_dir={cache}", "-m", expression]
            for cache, (prefix, expression) in zip(caches, parts, strict=True)
        ]
        codes = run(lanes, arguments.at_once)
        failed = [_failed(cache) for cache in caches]
        if any(failed) and {*codes} <= {0, _TESTS_FAILED}:
            _tell(f"{sum(map(len, failed))} failed beside the other lanes; once more, alone")
            for number, names in enumerate(failed):
                if names:
                    again = [*lanes[number], "--last-failed", f"--maxfail={_BROKEN}"]
                    (codes[number],) = run([again])
                if codes[number] not in (0, _TESTS_FAILED):
                    break  # somebody has interrupted it
            for cache, names in zip(caches, failed, strict=True):
                still = _failed(cache)
                for name in names:
                    _tell(f"{'failed' if name in still else 'passed alone'}: {name}")
        return next((code for code in codes if code), 0)


def _pytest(timeout: object) -> list[str]:
    continued = ["-p", "tests.continued"] if VARIABLE in os.environ else []
    return [sys.executable, "-m", "pytest", f"--timeout={timeout}", *continued]


def _second_lab(stack_file: Path) -> list[str]:
    """Write the stack file of a second lab; return the variables by which tests find it."""
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    stack["config"]["divvy:lab"] |= _SECOND_LAB
    stack_file.write_text(yaml.safe_dump(stack))
    return [f"DIVVY_LAB={_SECOND_LAB_NAME}", f"DIVVY_LAB_STACK={stack_file}"]


def _failed(cache: Path) -> list[str]:
    """Return the names that pytest keeps of a run's failures."""
    kept = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(kept.read_text())) if kept.exists() else []


def _tell(line: str) -> None:
    print(f"== {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
