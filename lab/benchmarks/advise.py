"""Advise on 90 days of 2,000 pods a day: python -m lab.benchmarks.advise.

Each profile of a pool is replayed with 180,000 pods of a hundred sizes, read from a recording.
"""

import gc
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from divvy.advise.adviser import advise
from divvy.advise.trace import heading, read_recording, trace_of
from divvy.model import parse_cluster

DAYS, PODS_A_DAY = 90, 2_000
NODES, GPUS = 40, 8
BUDGET_S, BUDGET_MB = 10.0, 500
DAY = 86_400
CLUSTER = {
    "profiles": {"whole": {}},
    "pools": {
        "a100": {
            "hardware": {"model": "A100-SXM4-40GB", "gpus": GPUS, "count": NODES},
            "profile": "whole",
        }
    },
}


def pods() -> Iterator[dict[str, Any]]:
    """Yield pods that come mostly by day, run two hours in the mean, and use a part of a GPU."""
    random = Random(90)
    sizes = [(random.randint(500, 20_000), random.randint(1, 40)) for _ in range(100)]
    for number in range(DAYS * PODS_A_DAY):
        day = number // PODS_A_DAY
        begin = day * DAY + min(max(random.gauss(0.55, 0.2), 0), 1) * DAY
        peak, cores = random.choice(sizes)
        yield {
            "namespace": f"team-{number % 20}",
            "pod": f"job-{number}",
            "node": f"gpu-{number % NODES}",
            "pool": "a100",
            "resource": "nvidia.com/gpu",
            "kind": "whole",
            "devices": 1,
            "begin": round(begin),
            "end": round(begin + random.expovariate(1 / 7200) + 60),
            "givenMiB": 40_960,
            "givenCores": 100,
            "peakMiB": peak,
            "p95Cores": cores,
            "peakCores": min(100, 2 * cores),
            "waitedSeconds": 0,
        }


def write(path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(heading("bench", 0, DAYS * DAY)) + "\n")
        file.writelines(json.dumps(pod) + "\n" for pod in pods())


def main() -> None:
    if len(sys.argv) == 1:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "recording.jsonl"
            write(path)
            run(path)
        return
    run(Path(sys.argv[1]))


def run(path: Path) -> None:
    gc.set_threshold(100_000)  # as the command does
    cluster = parse_cluster(CLUSTER)
    started, used = perf_counter(), process_time()
    with path.open(encoding="utf-8") as lines:
        trace = trace_of(read_recording(lines, str(path)))
    read = perf_counter()
    advice = advise(cluster, trace, ["a100"], DAYS * DAY)
    done = perf_counter()
    pool = advice.pools[0]
    figures = {
        "pods": len(trace.pods),
        "gpus_today": pool.today.gpus if pool.today else None,
        "gpus_advised": pool.recommended.gpus if pool.recommended else None,
        "advised": pool.recommended.words if pool.recommended else pool.reason,
        "read_s": round(read - started, 1),
        "advise_s": round(done - read, 1),
        "all_s": round(done - started, 1),
        "processor_s": round(process_time() - used, 1),
        "budget_s": BUDGET_S,
        "resident_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "budget_mb": BUDGET_MB,
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
