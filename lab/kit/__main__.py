"""The kit on the machine under test: ``run.sh [OPTIONS]`` is ``divvy verify --bare`` with more.

Adds what the kit brings, keeps names of host and GPUs out of the report, and removes what was
unpacked. Exit codes are those of ``divvy verify``.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

from conformance.bare.processes import adopt_orphans, descendants, kill_descendants
from conformance.bare.run_state import NotAlone, run_lock
from divvy.cli.command import main as divvy

# <kit>/python/lib/python3.11/site-packages/lab/kit/__main__.py
_KIT = Path(__file__).resolve().parents[6]
# What run.sh makes begins so, and has a file with its process.
_FOLDERS, _OWNER = "divvy-kit.", "owner"
# Nine minutes, less what the last check may take to end and to put back what it has changed.
_MINUTES = 8
# What a check that is told to end has for that, and the report.
_GRACE_SECONDS = 60.0
_CANNOT_BEGIN = 2


def _options(given: list[str]) -> list[str]:
    """Return the command line of ``divvy``; an option that is given again counts."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    own = [f"--out=divvy-hardware/{stamp}", f"--time-limit={_MINUTES}"]
    return ["verify", "--bare", "--exclusive", *own, *given]


def _clear_abandoned(unpacked: Path) -> None:
    """Remove what runs have left that were killed."""
    for folder in unpacked.parent.glob(f"{_FOLDERS}*"):
        with contextlib.suppress(OSError, ValueError):
            owner = int((folder / _OWNER).read_text())
            if folder != unpacked and not Path(f"/proc/{owner}").exists():
                shutil.rmtree(folder, ignore_errors=True)


def _let_end() -> None:
    """Wait for a suite that is told to end, also where Ctrl-C was pressed twice."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deadline = time.monotonic() + _GRACE_SECONDS
    while descendants(os.getpid()) and time.monotonic() < deadline:
        time.sleep(0.1)
    kill_descendants()


def main() -> None:
    """Run the checks."""
    unpacked = _KIT.parent if _KIT.parent.name.startswith(_FOLDERS) else None
    adopt_orphans()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup has it ignored.
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        try:
            with run_lock():
                if unpacked is not None:
                    _clear_abandoned(unpacked)
        except (NotAlone, OSError) as problem:
            print(f"hardware kit: {problem}", file=sys.stderr)
            sys.exit(_CANNOT_BEGIN)
        # What is simulated is exercised, and never passes for what only hardware shows.
        suite = [
            *("-p", "lab.kit.agent_scene"),
            f"--kit={_KIT}",
            "--no-identities",
            "--hardware-checks-anyway",
        ]
        os.environ["PYTEST_ADDOPTS"] = shlex.join(suite)
        if unpacked is not None:
            os.environ["TMPDIR"] = str(unpacked)
        sys.argv = ["divvy", *_options(sys.argv[1:])]
        divvy()
    finally:
        _let_end()
        if unpacked is not None:
            shutil.rmtree(unpacked, ignore_errors=True)


if __name__ == "__main__":
    main()
