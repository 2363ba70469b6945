"""Begins a run on a bare host: alone, and after a killed run's leftovers are put back."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conformance.bare.host import BareHost, open_host
from conformance.bare.interruption import INTERRUPTION, Interruption, TooLate
from conformance.bare.kit import Kit
from conformance.bare.mig import put_back
from conformance.bare.processes import adopt_orphans
from conformance.bare.run_state import STATE, NotAlone, run_lock
from divvy.agent.nvml.process import DriverProblem

# A driver that hangs has it.
_LOOK_SECONDS = 100


def begin(config: pytest.Config, deadline: float) -> BareHost:
    """Look at the host, and take over what ends its checks; put back what a killed run has left.

    Raises pytest.UsageError.
    """
    cleanups = ExitStack()
    config.add_cleanup(cleanups.close)
    interruption = config.stash[INTERRUPTION] = Interruption()
    interruption.deadline = deadline
    alone = bool(config.getoption("--mig") or config.getoption("--kit"))
    try:
        if alone:
            cleanups.enter_context(run_lock())
        with interruption.limited(_LOOK_SECONDS):
            host = open_host(config)
        if not host.is_here:
            return host
        adopt_orphans()
        interruption.listen()
        # Without the lock, it may be another run's, which is still at work.
        if alone and (uuid := put_back(Path(host.root), STATE)):
            gpu = "a GPU" if config.getoption("--no-identities") else uuid
            print(f"an earlier run had left {gpu} cut by MIG: it is whole again", file=sys.stderr)
            host = open_host(config)
    except TooLate:
        raise pytest.UsageError(f"the driver did not answer within {_LOOK_SECONDS} s") from None
    except NotAlone as problem:
        raise pytest.UsageError(str(problem)) from None
    except DriverProblem as problem:
        text = "an earlier run has left a GPU cut by MIG, which cannot be put back"
        raise pytest.UsageError(f"{text}: {problem}") from None
    except OSError as problem:
        raise pytest.UsageError(f"--mig and the hardware kit need root: {problem}") from None
    return host


def describe(config: pytest.Config, host: BareHost) -> dict[str, Any]:
    """Return the identity of what was tested, and the kit's revision where it is used."""
    kit = config.getoption("--kit")
    return {**host.describe(), **({} if kit is None else {"kit": Kit(Path(kit)).revision})}
