"""Programs that use one GPU at the same time: which part of its time each of them gets."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Much shorter than a turn of the limiter, and much longer than a launch.
_KERNEL_MS = 1
_PATIENCE = 60.0
# From the last word of a program that it is ready to the first kernel of all.
_HEAD_START = 0.5

Start = Callable[..., "subprocess.Popen[str]"]


class NotEven(AssertionError):
    """A program that did not come to its end; the text is what it said."""


@dataclass(frozen=True)
class TimeShare:
    """Measures on one host; simulated GPUs run its kernels asleep."""

    simulated: bool

    def kernel_size(self, start: Start) -> int:
        """Return the size of a kernel of about a millisecond, alone; raises NotEven."""
        output = _end_of(start(*self._command("size", _KERNEL_MS)))
        if not output.strip().isdigit():
            raise NotEven(output)
        return int(output)

    def together(self, starts: Sequence[Start], size: int, seconds: float) -> list[float]:
        """Run one program from each of ``starts`` over the same time; return their Gflop/s.

        Raises NotEven.
        """
        programs = [start(*self._command("work", size)) for start in starts]
        try:
            for program in programs:
                _ready(program)
            begin = time.clock_gettime(time.CLOCK_MONOTONIC) + _HEAD_START
            for program in programs:
                assert program.stdin is not None
                program.stdin.write(f"{begin} {seconds}\n")
                program.stdin.flush()
            return [_figure(_end_of(program, seconds)) for program in programs]
        finally:
            for program in programs:
                program.kill()

    def _command(self, *arguments: object) -> tuple[object, ...]:
        return ("time-share", *(("--asleep",) if self.simulated else ()), *arguments)


def _ready(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    # What the loader or the limiter has to say comes before it.
    lines = []
    for line in program.stdout:
        if line.strip() == "ready":
            return
        lines.append(line)
    raise NotEven("".join(lines) or f"exit code {program.wait()}")


def _end_of(program: subprocess.Popen[str], seconds: float = 0) -> str:
    try:
        out, _ = program.communicate(timeout=seconds + _PATIENCE)
    except subprocess.TimeoutExpired:
        program.kill()
        raise NotEven(f"it did not end within {seconds + _PATIENCE:.0f} s") from None
    if program.returncode:
        raise NotEven(f"exit code {program.returncode}: {out.strip()}")
    return out


def _figure(output: str) -> float:
    match = re.search(r"([\d.]+) Gflop/s", output)
    if match is None:
        raise NotEven(output)
    return float(match[1])
