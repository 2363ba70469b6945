"""Run parts of the suite at the same time: `python -m tests.lanes -m EXPRESSION -m EXPRESSION`.

What shares the lab mostly waits for kubelets, what runs an agent waits for that, each one test
after the other; all else can run meanwhile.
Reports come one after the other, each as it grows, in the order of the expressions.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

_PERIOD = 0.1


def run(commands: Sequence[Sequence[str]]) -> int:
    """Run commands at once, print what they say in their order; return the first bad exit code.

    SIGINT and SIGTERM reach each command once, as SIGINT: pytest then takes down what it has up.
    """
    with tempfile.TemporaryDirectory(prefix="divvy-tests-") as folder:
        reports = [Path(folder) / str(number) for number in range(len(commands))]
        processes = [
            _start(command, report) for command, report in zip(commands, reports, strict=True)
        ]

        def interrupt(_signal: int, _frame: FrameType | None) -> None:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGINT)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, interrupt)
        for process, report in zip(processes, reports, strict=True):
            _follow(process, report)
        return next((process.returncode for process in processes if process.returncode), 0)


def _start(command: Sequence[str], report: Path) -> subprocess.Popen[bytes]:
    with report.open("wb") as output:
        # A group of its own: a terminal's Ctrl-C comes from here, once, and not from both.
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=_hear_interrupts,
        )


def _hear_interrupts() -> None:
    # Without job control a shell's background jobs ignore them, and so would their children.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _follow(process: subprocess.Popen[bytes], report: Path) -> None:
    """Copy what a process writes until it ends."""
    with report.open("rb") as said:
        ended = False
        while not ended:
            ended = process.poll() is not None
            shutil.copyfileobj(said, sys.stdout.buffer)
            sys.stdout.buffer.flush()
            if not ended:
                time.sleep(_PERIOD)


def main() -> int:
    """Run pytest once for each mark expression."""
    parser = argparse.ArgumentParser(prog="tests.lanes")
    parser.add_argument("-m", action="append", required=True, metavar="EXPRESSION")
    # What an interrupted lane has left in its buffer is worth reading.
    os.environ["PYTHONUNBUFFERED"] = "1"
    pytest = [sys.executable, "-m", "pytest"]
    return run([[*pytest, "-m", expression] for expression in parser.parse_args().m])


if __name__ == "__main__":
    sys.exit(main())
