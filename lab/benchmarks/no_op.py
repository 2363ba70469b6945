"""The commands of every day where nothing changed: preview and up of the lab's stack.

Whole processes, from the shell's start of one to its end; in turns with the least that any
run of a Pulumi program costs, `import pulumi` in a process of its own. Run it with nothing
else at work; it brings the lab up and deploys its stack, where that is not done.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

DIVVY = Path(sys.executable).with_name("divvy")
ROUNDS = 20
COMMANDS = {
    "import pulumi": (sys.executable, "-c", "import pulumi"),
    "divvy preview": (DIVVY, "preview", "--stack=lab", "--expect-no-changes"),
    "divvy up": (DIVVY, "up", "--stack=lab", "--yes"),
}


def _seconds(command: tuple[str | Path, ...]) -> tuple[float, float]:
    """Return wall and processor time of a command and its children."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def main() -> None:
    subprocess.run((DIVVY, "lab", "up"), check=True, stdout=subprocess.DEVNULL)
    # What is not deployed yet, and modules that are not compiled yet.
    subprocess.run(COMMANDS["divvy up"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(COMMANDS["divvy preview"], check=True, stdout=subprocess.DEVNULL)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            times[name].append(_seconds(command))
    least = statistics.median(wall for wall, _ in times["import pulumi"])
    print(f"{'':14} {'least':>7} {'median':>7} {'most':>7} {'processor':>10} {'× import':>9}")
    for name, measured in times.items():
        walls = [wall for wall, _ in measured]
        median = statistics.median(walls)
        processor = statistics.median(used for _, used in measured)
        print(
            f"{name:14} {min(walls):>6.2f}s {median:>6.2f}s {max(walls):>6.2f}s "
            f"{processor:>9.2f}s {median / least:>9.1f}"
        )


if __name__ == "__main__":
    main()
