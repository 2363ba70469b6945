"""The machine that tests compile and run programs for: this one, or arm64 by QEMU's user emulation.

``DIVVY_ARM64_ROOT`` names a root file system of arm64 with Python, and chooses the latter.
"""

from __future__ import annotations

import os
import sys

ARM64_ROOT = os.environ.get("DIVVY_ARM64_ROOT", "")
ARM64_CC = "aarch64-linux-gnu-gcc"
CC = ARM64_CC if ARM64_ROOT else "cc"
SANITIZERS = (
    () if ARM64_ROOT else ("-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
)
"""What finds mistakes in C on this machine; the emulation has no room for it."""


def emulator(root: str) -> tuple[str, ...]:
    """Return what runs a program of arm64, with the libraries below a root."""
    return ("qemu-aarch64-static", "-L", root)


RUN = emulator(ARM64_ROOT) if ARM64_ROOT else ()
"""What stands before the path of a program that was compiled by ``CC``."""
PYTHON = (*RUN, f"{ARM64_ROOT}/usr/bin/python3") if ARM64_ROOT else (sys.executable,)
