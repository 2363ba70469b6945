"""How long a lab takes to come and go, and what an idle one costs.

Measures the lab of stacks/Pulumi.lab.yaml, or of the stack file given; a lab of that name that
is up is taken down for it.
"""

import re
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from lab.cluster import processes
from lab.cluster.lifecycle import running_lab
from lab.cluster.machine import Machine

DIVVY = Path(sys.executable).with_name("divvy")
ROUNDS = 5


def _seconds(*arguments: str) -> float:
    if arguments == ("up",):
        arguments = ("up", *(f"--file={file}" for file in sys.argv[1:]))
    began = time.monotonic()
    subprocess.run([DIVVY, "lab", *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _drop_caches() -> None:
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def _memory() -> dict[str, tuple[int, int]]:
    """Return component → number of processes and their memory (PSS, MiB)."""
    namespaces = {
        Path(f"/proc/{Machine(running_lab(), node).pid()}/ns/pid").readlink()
        for node in running_lab().nodes
    }
    control_plane = {process.pid for process in processes.running()}
    sizes: dict[str, list[int]] = defaultdict(list)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = (process / "ns/pid").readlink() in namespaces
            if not inside and int(process.name) not in control_plane:
                continue
            name = (process / "comm").read_text().strip()
            pss = re.search(r"^Pss:\s+(\d+)", (process / "smaps_rollup").read_text(), re.M)
        except OSError:
            continue
        if pss:
            sizes[name].append(int(pss[1]))
    return {name: (len(all_), round(sum(all_) / 1024)) for name, all_ in sizes.items()}


def _processor_share(seconds: float) -> float:
    """Return the share of one core that the lab uses when it has nothing to do."""

    def used() -> int:
        total = 0
        for process in processes.running():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total

    before = used()
    time.sleep(seconds)
    return (used() - before) / 100 / seconds


def main() -> None:
    _seconds("down")
    rows: dict[str, list[float]] = defaultdict(list)
    _drop_caches()
    rows["up, files not in memory"].append(_seconds("up"))
    for _ in range(ROUNDS):
        rows["down"].append(_seconds("down"))
        rows["up"].append(_seconds("up"))
        rows["up again, nothing to do"].append(_seconds("up"))
        rows["restart of a node"].append(_seconds("restart", "gpu-t4"))
        rows["restart of a kubelet"].append(_seconds("restart", "gpu-t4", "kubelet"))
        _seconds("kill", "gpu-t4")
        rows["up after a killed node"].append(_seconds("up"))
    print(f"{'seconds':<28} {'median':>7} {'least':>7} {'most':>7}   of")
    for name, all_ in rows.items():
        figures = (statistics.median(all_), min(all_), max(all_))
        print(f"{name:<28} {''.join(f'{figure:8.2f}' for figure in figures)}   {len(all_)}")
    time.sleep(30)
    memory = _memory()
    print(f"\n{'idle lab, memory (PSS)':<28} {'MiB':>7}  processes")
    for name, (count, mebibytes) in sorted(memory.items(), key=lambda item: -item[1][1]):
        print(f"{name:<28} {mebibytes:>7}  {count}")
    print(f"{'all':<28} {sum(mebibytes for _, mebibytes in memory.values()):>7}")
    print(f"\nidle lab, share of one core: {_processor_share(30):.1%}")
    _seconds("down")


if __name__ == "__main__":
    main()
