"""Walk: ``python -m tests.claim_walk SEED SEQUENCES [FIRST]``."""

from __future__ import annotations

import sys
from time import monotonic

from tests.claim_walk.cluster import walk_cluster
from tests.claim_walk.oracle import Broken
from tests.claim_walk.walk import walk

seed, sequences, first = (*map(int, sys.argv[1:]), 0)[:3]
began = monotonic()
with walk_cluster() as cluster:
    try:
        count = walk(cluster, seed, sequences, first)
    except Broken as broken:
        sys.exit(f"seed {seed}: broken after {monotonic() - began:.0f} s\n{broken}")
    print(
        f"seed {seed}: {sequences} sequences, {count.pods} pods, in the end {count.ran} ran and "
        f"{count.waited} waited, the scheduler woken {count.woken} times and restarted "
        f"{count.restarted} times, {cluster.watcher.events} looks, "
        f"{monotonic() - began:.0f} s: nothing broken"
    )
