"""What must be undone on this node, kept on its disk: which GPUs a daemon was started for.

It is written before a compute mode is changed and cleared after that is restored, so that an agent
that starts after a crash knows what the one before it left.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from divvy.agent.gpu.plain_values import from_plain
from divvy.agent.inject.atomic_file import replace_file

_log = logging.getLogger(__name__)
_FILE = "mps.json"
_MODE = 0o600
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True)
class Recorded:
    """A GPU's compute mode before, and the daemon's process: PID and start time, 0 without one."""

    mode: int
    pid: int = 0
    started: int = 0


class MpsRecord:
    """The record of one node, by GPU UUID."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FILE
        self.gpus: Mapping[str, Recorded] = self._read()

    def _read(self) -> dict[str, Recorded]:
        try:
            raw = json.loads(self._path.read_text())
            return {str(uuid): _recorded(gpu) for uuid, gpu in raw["gpus"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, *_DAMAGE) as error:
            _log.warning("%s is unreadable (%s): starting without it", self._path, error)
            return {}

    def note(self, uuid: str, recorded: Recorded) -> None:
        """Write what is to be undone for a GPU; raises OSError and leaves the record as it was."""
        self._write({**self.gpus, uuid: recorded})

    def process(self, uuid: str, pid: int, started: int) -> None:
        """Write which process is a GPU's daemon, 0 for none; raises OSError."""
        self.note(uuid, replace(self.gpus[uuid], pid=pid, started=started))

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
    found = from_plain(Recorded, raw)
    if not all(isinstance(value, int) for value in asdict(found).values()):
        raise TypeError(f"{raw!r} is not a record of a GPU")
    return found
