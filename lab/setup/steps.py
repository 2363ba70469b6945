"""Run set-up steps, some beside others, and print one line for each."""

import errno
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

from lab.cluster.paths import cache


class StepFailed(Exception):
    """A step could not be done; `remedy` says how to go on."""

    def __init__(self, reason: str, remedy: str):
        super().__init__(reason)
        self.remedy = remedy


@dataclass(frozen=True)
class Step:
    """One thing to be there; `ensure` says in a few words what it did, nothing if it was there."""

    name: str
    ensure: Callable[[], str]


def run_steps(*lanes: Sequence[Step]) -> bool:
    """Run lanes at once, the steps of a lane in order; print a line when a step is done.

    A failure is reported at once, with how to go on; no lane starts another step after it.
    """
    run = _Run(sum(map(len, lanes)))
    with ThreadPoolExecutor(len(lanes)) as threads:
        for lane in [threads.submit(run.lane, steps) for steps in lanes]:
            lane.result()
    if run.failed:
        print("Finished steps are not repeated: run make setup again.", file=sys.stderr)
    return not run.failed


class _Run:
    """What has been done of the steps of all lanes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._lock = Lock()
        self.failed = False

    def lane(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if self.failed:
                return
            began = time.monotonic()
            try:
                outcome = step.ensure() or "there already"
            except StepFailed as failure:
                self._fail(step, str(failure), failure.remedy)
                return
            except OSError as problem:
                # Such as a folder that cannot be written to.
                self._fail(step, str(problem), "Remove what stands in the way.")
                return
            self._print(step, f"{outcome} ({_duration(time.monotonic() - began)})")

    def _fail(self, step: Step, reason: str, remedy: str) -> None:
        self.failed = True
        if os.strerror(errno.ENOSPC).lower() in reason.lower():
            scratch = os.environ.get("TMPDIR", "/tmp")
            others = f"DIVVY_CACHE moves {cache()} to another, and TMPDIR {scratch}"
            remedy = f"Make room on that disk. {others}."
        self._print(step, "failed")
        # Other lanes may take half an hour to end their step.
        print(f"\n{step.name}: {reason}\n{remedy}", file=sys.stderr, flush=True)

    def _print(self, step: Step, outcome: str) -> None:
        with self._lock:
            self._done += 1
            print(f"{f'[{self._done}/{self._total}] {step.name} ':.<44} {outcome}", flush=True)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
