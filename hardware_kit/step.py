"""One step in a process of its own: ``python -m hardware_kit.step NAME SETTINGS NOTES``."""

from __future__ import annotations

import importlib
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from hardware_kit.notes import Notes, NotMade
from hardware_kit.settings import read_settings
from hardware_kit.steps import CATALOGUE

NOT_MADE = 4


class Stopped(BaseException):
    """The run wants the step to end; what it changed is put back on the way out."""


def _stop(_number: int, _frame: FrameType | None) -> NoReturn:
    # Once: what is being put back is not to be broken off.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise Stopped


def main() -> int:
    """Run the step; its findings are in the notes, a traceback is on standard error."""
    name, settings_path, notes_path = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    settings = read_settings(Path(settings_path))
    notes = Notes(Path(notes_path), simulated=settings.machine.simulated)
    (entry,) = (step for step in CATALOGUE if step.name == name)
    try:
        importlib.import_module(entry.module).run(settings, notes)
    except NotMade as reason:
        notes.reason = str(reason)
        notes.save()
        return NOT_MADE
    except Stopped:
        return 1
    notes.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
