"""The limiter's memory limit on this driver: refusals, races, and processes that are killed."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

from divvy.agent.inject.account import Figures, read_account
from hardware_kit.container import Container
from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.tenant import tenant

_MIB = 1 << 20
_LIMIT, _TENTHS = 1024, 1000
# More than the limit has room for; CUDA's own refusal is mem-hog's exit code 12.
_REFUSED = 12


def run(settings: KitSettings, notes: Notes) -> None:
    """Go for one share's memory in every way."""
    injected = inject(settings)
    rounds, kills = (150, 3) if settings.short else (1500, 10)
    container = tenant(settings, injected, "memory", _LIMIT)
    container.environment.append("LIBCUDA=libcuda.so.1")
    _refusal(container, notes)
    _race(container, notes, rounds, 2, 600, 1)
    tenths = tenant(settings, injected, "tenths", _TENTHS)
    tenths.environment.append("LIBCUDA=libcuda.so.1")
    _race(tenths, notes, max(3, rounds // 30), 32, 100, 10)
    _killed(container, notes, kills)


def _refusal(container: Container, notes: Notes) -> None:
    asked = container.run("mem-hog", "--mib", _LIMIT * 11 // 10, "--chunk", 64)
    got = re.search(r"allocated (\d+) MiB.*device: (\d+) MiB total", asked.stdout)
    granted, total = (int(got[1]), int(got[2])) if got else (-1, -1)
    notes.equal("a tenth more than the limit: mem-hog's exit code", _REFUSED, asked.returncode)
    notes.holds("granted of it in MiB", 0 <= granted <= _LIMIT, f"at most {_LIMIT}", granted)
    notes.equal("total memory as CUDA tells it in MiB", _LIMIT, total)
    shown = container.run("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
    notes.equal("total memory as nvidia-smi tells it in MiB", str(_LIMIT), shown.stdout.strip())
    print(asked.stdout, shown.stdout)


def _race(
    container: Container, notes: Notes, rounds: int, processes: int, mib: int, winners: int
) -> None:
    began = time.monotonic()
    done = container.run("race", rounds, processes, mib * _MIB, seconds=100)
    what = f"{processes} processes that each want {mib} MiB, {rounds} rounds: granted"
    expected = f"{winners} in {rounds} rounds"
    outcomes = "; ".join(
        f"{count} in {times} rounds"
        for count, times in re.findall(r"^(\d+) (\d+)$", done.stdout, re.MULTILINE)
    )
    sound = outcomes == expected and done.returncode == 0
    notes.holds(what, sound, expected, outcomes or f"exit code {done.returncode}: {done.stdout}")
    notes.tell("seconds that it took", time.monotonic() - began)


def _killed(container: Container, notes: Notes, kills: int) -> None:
    generator = random.Random(5)
    for seed in range(kills):
        churning = container.start("race", "churn", seed)
        assert churning.stdout is not None
        churning.stdout.readline()
        time.sleep(generator.random() * 0.02)
        churning.kill()
        churning.communicate()
    figures = _settled(
        Path(next(share.host for share in container.shares if share.path.endswith("account")))
    )
    left = f"{len(figures.slots)} processes, {figures.used[0]} bytes"
    what = f"left in the account after {kills} processes killed while three threads allocate"
    notes.equal(what, "0 processes, 0 bytes", left)
    after = container.run("mem-hog", "--mib", _LIMIT * 9 // 10)
    notes.equal("nine tenths of the limit afterwards: mem-hog's exit code", 0, after.returncode)


def _settled(account: Path) -> Figures:
    """Return the account once the kernel has ended what was killed, within some seconds."""
    deadline = time.monotonic() + 5
    while True:
        figures = read_account(account)
        if not figures.slots or time.monotonic() > deadline:
            return figures
        time.sleep(0.05)
