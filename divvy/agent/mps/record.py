"""``MpsRecord``: the GPUs that a daemon was started for, to be undone, on the node's disk.

It is written before a compute mode is changed, and cleared after that is restored and the daemon's
folders are gone, so that an agent that starts later knows what the one before it left, and with
which limits clients were started that run on.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from divvy.agent.gpu.plain_values import from_plain
from divvy.agent.mps.processes import Process
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file

_log = logging.getLogger(__name__)
_FILE = "mps.json"
_MODE = 0o600
_DEFAULT_COMPUTE_MODE = 0
Limits = tuple[tuple[str, int, int], ...]
"""Of each share by its name: memory in MiB, threads in per cent."""
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Recorded:
    """A GPU's compute mode before, and the daemon's process: PID and start time, 0 without one.

    ``driver`` is the version of the driver that it was started with, "" if that is not known;
    ``limits`` are those that its clients were started with.
    """

    mode: int
    pid: int = 0
    started: int = 0
    driver: str = ""
    limits: Limits = ()

    @property
    def process(self) -> Process:
        """Return the daemon's process, which need not run."""
        return Process(self.pid, self.started)


class MpsRecord:
    """The record of one node, by GPU UUID."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.gpus: Mapping[str, Recorded] = self._read()

    def _read(self) -> dict[str, Recorded]:
        try:
            raw = json.loads(read_regular_file(self._path))
            return {str(uuid): _recorded(gpu) for uuid, gpu in raw["gpus"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, *_DAMAGE) as error:
            _log.warning("%s is unreadable (%s): starting without it", self._path, error)
            return {}

    def note(self, uuid: str, recorded: Recorded) -> None:
        """Write what is to be undone for a GPU; raises OSError and leaves the record as it was."""
        self._write({**self.gpus, uuid: recorded})

    def add_leftovers(self, daemons: Mapping[str, Process], gpus: Iterable[str]) -> None:
        """Count as recorded the daemons that run, and GPUs of which a daemon's folders are left.

        Which compute mode such a GPU had is lost: it gets the one with which a driver starts.
        """
        added = dict(self.gpus)
        for uuid in {*daemons, *gpus}:
            recorded = added.setdefault(uuid, Recorded(_DEFAULT_COMPUTE_MODE))
            if uuid in daemons and not recorded.process.runs:
                process = daemons[uuid]
                pid, started = process.pid, process.started
                added[uuid] = replace(recorded, pid=pid, started=started, driver="")
        try:
            self._write(added)
        except OSError as error:  # the next agent finds them too
            _log.warning("%s is not written (%s): going on without it", self._path, error)
            self.gpus = added

    def set_process(self, uuid: str, process: Process | None, driver: str = "") -> None:
        """Write which process is a GPU's daemon, None for none; raises OSError."""
        pid, started = (0, 0) if process is None else (process.pid, process.started)
        self.note(uuid, replace(self.gpus[uuid], pid=pid, started=started, driver=driver))

    def set_limits(self, uuid: str, limits: Limits) -> None:
        """Write with which limits a GPU's clients were started; raises OSError."""
        self.note(uuid, replace(self.gpus[uuid], limits=limits))

    def clear(self, uuid: str) -> None:
        """Write that nothing is left to undo for a GPU; raises OSError."""
        self._write({name: gpu for name, gpu in self.gpus.items() if name != uuid})

    def _write(self, gpus: Mapping[str, Recorded]) -> None:
        if gpus == self.gpus:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        plain = {"version": 1, "gpus": {uuid: asdict(gpu) for uuid, gpu in sorted(gpus.items())}}
        replace_file(self._path, json.dumps(plain).encode(), _MODE)
        self.gpus = dict(gpus)


def _recorded(raw: Mapping[str, Any]) -> Recorded:
    limits = tuple(map(_limit, raw.get("limits", ())))
    recorded = from_plain(Recorded, raw, limits=limits)
    numbers = (recorded.mode, recorded.pid, recorded.started)
    if not all(isinstance(n, int) for n in numbers) or not isinstance(recorded.driver, str):
        raise TypeError(f"{raw!r} is not a record of a GPU")
    return recorded


def _limit(raw: Sequence[Any]) -> tuple[str, int, int]:
    name, memory_mib, threads = raw
    if not (isinstance(name, str) and isinstance(memory_mib, int) and isinstance(threads, int)):
        raise TypeError(f"{raw!r} are not a share's limits")
    return name, memory_mib, threads
