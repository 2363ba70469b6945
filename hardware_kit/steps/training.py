"""A framework that nobody here wrote trains on a share, and keeps to it."""

from __future__ import annotations

from conformance.cluster.pods import Outcome
from conformance.load.training import read_training
from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.tenant import tenant

_LIMIT = 3000
_SECONDS = 150


def run(settings: KitSettings, notes: Notes) -> None:
    """Train with tinygrad in a container that has a share of the GPU."""
    seconds = 0 if settings.short else 5
    share = tenant(settings, inject(settings), "training", _LIMIT, 50)
    # tinygrad keeps what it has compiled in the home directory.
    share.environment.append("HOME=/tmp")
    train = share.python("/usr/bin/train.py", f"--seconds={seconds}", f"--ask={_LIMIT}")
    done = share.run(*train, seconds=_SECONDS)
    print(done.stdout)
    read = read_training(Outcome("", done.returncode, done.stdout, ""))
    notes.equal("exit code", 0, done.returncode)
    notes.equal("the loss falls to a tenth, and every loss is a number", True, read.learns)
    notes.equal("the same training again has the same losses", True, read.is_repeated)
    notes.equal("memory that CUDA shows in MiB", _LIMIT, read.total)
    notes.equal("memory that nvidia-smi shows in MiB", _LIMIT, read.shown)
    fits = read.used is not None and 0 < read.used <= _LIMIT
    notes.holds("memory that it uses in MiB", fits, f"at most {_LIMIT}", read.used)
    notes.equal(f"{_LIMIT} MiB more: refused with CUDA's code for that", True, read.refused)
    notes.equal("it trains on afterwards", True, read.goes_on)
    losses = [line for line in done.stdout.splitlines() if line.startswith("loss ")]
    notes.tell("its own words", losses[-1:] or "none")
