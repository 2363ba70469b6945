"""The engine on the lab: preview, first up, no-op up, one change and destroy of many ConfigMaps.

Whole-process wall times; run it with nothing else at work. It brings the lab up.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from divvy.lab import lifecycle
from divvy.lab.paths import KUBECONFIG
from divvy.lab.section import read_lab
from divvy.stack.file import read_stack
from tests.engine.programs import Program
from tests.running_lab import RunningLab

SIZES = (10, 100, 1000)


def timed(program: Program, *arguments: str, expect: int = 0) -> float:
    began = time.perf_counter()
    program.run(*arguments, expect=expect)
    return time.perf_counter() - began


def journal_bytes(program: Program) -> int:
    """Return what one changed resource writes while the run goes: the size of a journal."""
    process = program.start("up", "--yes")
    journal = program.folder / ".pulumi/divvy/trial/dev.journal"
    largest = 0
    while process.poll() is None:
        if journal.exists():
            largest = max(largest, journal.stat().st_size)
        time.sleep(0.002)
    process.communicate()
    return largest


def main() -> None:
    description = read_lab(read_stack("lab", None))
    lifecycle.up(description, tell=lambda _line: None)
    lab = RunningLab(description, KUBECONFIG)
    print(f"{'resources':>9} {'preview':>9} {'first up':>9} {'no-op up':>9} {'one changed':>12} "
          f"{'its journal':>12} {'destroy':>9}")  # fmt: skip
    for size in SIZES:
        with lab.namespace() as namespace, tempfile.TemporaryDirectory() as folder:
            program = Program(Path(folder), KUBECONFIG, namespace)
            program.resources = {
                f"r{number}": {"data": {"v": "1"}, "called": f"r{number}"} for number in range(size)
            }
            preview = timed(program, "preview", expect=2)
            first = timed(program, "up", "--yes")
            again = statistics.median(timed(program, "up", "--yes") for _ in range(3))
            program.resources["r0"]["data"] = {"v": "2"}
            began = time.perf_counter()
            written = journal_bytes(program)
            changed = time.perf_counter() - began
            destroy = timed(program, "destroy", "--yes")
            print(f"{size:>9} {preview:>8.2f}s {first:>8.2f}s {again:>8.2f}s {changed:>11.2f}s "
                  f"{written:>10} B {destroy:>8.2f}s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
