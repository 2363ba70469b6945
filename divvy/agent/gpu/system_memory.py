"""The memory of the node, which a GPU without its own uses."""

import re
from pathlib import Path

_TOTAL = re.compile(r"^MemTotal:\s+(\d+) kB$", re.MULTILINE)


def system_memory_mib(root: Path) -> int:
    """Return what the kernel calls the total in proc(5) below a folder; OSError, ValueError."""
    total = _TOTAL.search((root / "proc/meminfo").read_text())
    if total is None:
        raise ValueError(f"{root / 'proc/meminfo'} names no MemTotal")
    return int(total[1]) >> 10
