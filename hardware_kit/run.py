"""A run: its steps one after the other, each in a process of its own with a limit of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO

from hardware_kit.children import end_with_parent, kill_descendants
from hardware_kit.record import Step, read_step, status_of, without_identities
from hardware_kit.settings import KitSettings
from hardware_kit.step import NOT_MADE
from hardware_kit.steps import Entry

# A step that is told to end has so long to put back what it changed: MIG layouts take a while.
_GRACE_SECONDS = 30.0
_LOG_CHARACTERS = 4000
_POLL_SECONDS = 0.05


@dataclass
class Conductor:
    """Runs steps until they are done, the time is up, or somebody wants the run to stop."""

    settings: KitSettings
    deadline: float
    tell: Callable[[str], None]
    mig: bool = False
    stopped: str = ""
    steps: list[Step] = field(default_factory=list)

    def listen(self) -> None:
        """End the current step, and begin no other, on Ctrl-C, SIGTERM and a lost terminal."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        if not self.stopped:
            self.tell("stopping: what was changed is put back; this can take half a minute")
        self.stopped = f"the run was stopped ({signal.Signals(number).name})"

    def conduct(self, entries: Iterable[Entry]) -> None:
        """Run all steps; whatever one of them does, the next is tried."""
        for entry in entries:
            self.tell(f"{entry.name:14} {entry.title} …")
            step = self._made(entry)
            step = without_identities(step)
            self.steps.append(step)
            reason = f": {step.reason}" if step.reason else ""
            self.tell(f"{'':14} {step.status} in {step.seconds:.1f} s{reason}")

    def _made(self, entry: Entry) -> Step:
        reason = self._why_not(entry)
        if reason:
            return Step(entry.name, entry.title, "not made", reason)
        began = time.monotonic()
        folder = self.settings.scratch / entry.name
        try:
            folder.mkdir()
            made = self._in_process(entry, folder, min(entry.seconds, self.deadline - began))
        except OSError as error:
            made = Step(entry.name, entry.title, "failed", f"it cannot be begun: {error}")
        return Step(**{**vars(made), "seconds": round(time.monotonic() - began, 2)})

    def _why_not(self, entry: Entry) -> str:
        if self.stopped:
            return self.stopped
        if time.monotonic() >= self.deadline:
            return "the time of the run was up"
        if entry.needs_mig and not self.mig:
            return "it changes MIG: ask for it with --mig"
        if entry.needs_idle and not self.settings.gpu:
            return f"no GPU is idle: {self._users()}"
        return ""

    def _users(self) -> str:
        used = [
            f"GPU {gpu.index} is used by {', '.join(gpu.users)}"
            if gpu.users
            else f"GPU {gpu.index} is in MIG mode"
            for gpu in self.settings.machine.gpus
        ]
        return "; ".join(used)

    def _in_process(self, entry: Entry, folder: Path, seconds: float) -> Step:
        notes, log = folder / "notes.json", folder / "log"
        settings = folder / "settings.json"
        scratch = folder / "scratch"
        scratch.mkdir()
        KitSettings(**{**vars(self.settings), "scratch": scratch}).write(settings)
        command = [sys.executable, "-m", "hardware_kit.step", entry.name, settings, notes]
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches this process alone, which tells the step once.
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
            ended = self._wait(process, seconds)
        left = kill_descendants()
        return self._read(entry, notes, log, process.returncode, ended, left)

    def _wait(self, process: subprocess.Popen[bytes], seconds: float) -> str:
        """Wait for a step; return why it was ended, "" where it ended by itself."""
        deadline, reason = time.monotonic() + seconds, ""
        while process.poll() is None:
            if not reason:
                late = time.monotonic() > deadline
                reason = self.stopped or (f"it did not end within {seconds:.0f} s" if late else "")
                if reason:
                    process.terminate()
                    deadline = time.monotonic() + _GRACE_SECONDS
            elif time.monotonic() > deadline:
                process.kill()
                reason += f", nor {_GRACE_SECONDS:.0f} s after it was told to"
                process.wait()
            time.sleep(_POLL_SECONDS)
        return reason

    def _read(
        self, entry: Entry, notes: Path, log: Path, code: int, ended: str, left: list[int]
    ) -> Step:
        try:
            raw = json.loads(notes.read_text())
        except (OSError, ValueError):
            raw = {"findings": [], "tables": [], "reason": ""}
        plain = {"name": entry.name, "title": entry.title, "status": "passed"}
        result = read_step({**plain, "findings": raw["findings"], "tables": raw["tables"]})
        last_words = _end_of(log)
        status, reason = status_of(result.findings)
        if code == NOT_MADE and not ended:
            status, reason = (
                ("failed", reason) if status == "failed" else ("not made", raw["reason"])
            )
        elif ended:
            status, reason = "failed", "; ".join(filter(None, (ended, reason)))
        elif code != 0:
            last = last_words.strip().splitlines()[-1:] or ["it said nothing"]
            broke = f"it broke off with exit code {code}: {last[0]}"
            status, reason = "failed", "; ".join(filter(None, (broke, reason)))
        if left:
            status, reason = "failed", f"{reason}; processes {left} could not be ended".lstrip("; ")
        wanted = last_words if status == "failed" else ""
        return Step(**{**vars(result), "status": status, "reason": reason, "log": wanted})


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            return _tail(file)
    except OSError:
        return ""


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, 2)
    file.seek(max(0, size - _LOG_CHARACTERS))
    return file.read().decode(errors="replace").replace("\0", "")
