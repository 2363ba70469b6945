"""The memory of the node, which a GPU without its own uses, and its NUMA nodes."""

import re
from pathlib import Path

from divvy.agent.regular_file import read_regular_file

_TOTAL = re.compile(rb"^MemTotal:\s+(\d+) kB$", re.MULTILINE)


def system_memory_mib(root: Path) -> int:
    """Return what the kernel calls the total in proc(5) below a folder; OSError, ValueError."""
    total = _TOTAL.search(read_regular_file(root / "proc/meminfo"))
    if total is None:
        raise ValueError(f"{root / 'proc/meminfo'} names no MemTotal")
    return int(total[1]) >> 10


def has_processors(root: Path, numa_node: int) -> bool:
    """Return whether a NUMA node has processors, by sysfs below a folder; False if not known.

    A GPU's memory is a node without: one with processors is at most the nearest to the GPU.
    """
    try:
        cpus = read_regular_file(root / f"sys/devices/system/node/node{numa_node}/cpulist")
    except OSError:
        return False
    return bool(cpus.strip())
