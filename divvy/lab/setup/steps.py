"""Run set-up steps one after the other, one line each."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


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


def run_steps(steps: Sequence[Step]) -> bool:
    """Run the steps in order; stop at the first that fails and say why and how to go on."""
    for number, step in enumerate(steps, 1):
        prefix = f"[{number}/{len(steps)}] {step.name} "
        print(f"{prefix:.<44} ", end="", flush=True)
        began = time.monotonic()
        try:
            done = step.ensure()
        except StepFailed as failure:
            print("failed", flush=True)
            print(f"\n{step.name}: {failure}\n{failure.remedy}", file=sys.stderr)
            print("What is done is kept: make setup goes on from there.", file=sys.stderr)
            return False
        print(f"{done or 'there already'} ({_duration(time.monotonic() - began)})", flush=True)
    return True


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
