"""Walk: ``python -m tests.agent.walk SEED STEPS``."""

from __future__ import annotations

import asyncio
import sys
from time import monotonic

from tests.agent.walk.oracle import Broken
from tests.agent.walk.walk import walk_steps

seed, steps = int(sys.argv[1]), int(sys.argv[2])
began = monotonic()
try:
    walk = asyncio.run(walk_steps(seed, steps))
except Broken as broken:
    sys.exit(f"seed {seed}: broken after {monotonic() - began:.0f} s\n{broken}")
print(
    f"seed {seed}: {steps} steps, {walk.oracle.samples} looks, {walk.admitted} pods admitted, "
    f"{walk.oracle.clock.lost:.0f} s without a processor, "
    f"{monotonic() - began:.0f} s: nothing broken"
)
