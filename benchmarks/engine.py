"""The engine's operations as ratios to `import pulumi`: preview, no-op up, change, destroy, create.

On an API server without nodes, 20 ConfigMaps, whole processes. Each operation is run in turns with
`import pulumi` in a process of its own; a ratio is the median over the pairs of processor time,
which another load on the machine changes less than wall time. Compare two revisions in turns:
``PYTHONPATH=<checkout> python -m benchmarks.engine`` runs another checkout's engine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.engine.bare_cluster import bare_cluster
from tests.engine.programs import Program

ROUNDS = int(os.environ.get("DIVVY_BENCHMARK_ROUNDS", "10"))
RESOURCES = 20


def seconds_of(run: Callable[[], object]) -> tuple[float, float]:
    """Return wall and processor seconds of a call and its child processes."""
    before, began = os.times(), time.perf_counter()
    run()
    wall, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def import_pulumi() -> None:
    subprocess.run((sys.executable, "-c", "import pulumi"), check=True)


def main() -> None:
    with bare_cluster() as cluster, tempfile.TemporaryDirectory() as folder:
        cluster.kubectl("create", "namespace", "benchmark")
        program = Program(Path(folder), cluster.kubeconfig, "benchmark")

        def change() -> None:
            data = program.resources["r0"]["data"]
            data["v"] = str(int(data["v"]) + 1)
            program.up()

        program.resources = {
            f"r{number}": {"data": {"v": "1"}, "called": f"r{number}"}
            for number in range(RESOURCES)
        }
        operations: dict[str, Callable[[], object]] = {
            "create": program.up,
            "preview": lambda: program.run("preview"),
            "no-op up": program.up,
            "change": change,
            "destroy": lambda: program.run("destroy", "--yes"),
        }
        import_pulumi()
        pairs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in operations}
        for _ in range(ROUNDS):
            for name, operation in operations.items():
                _, least = seconds_of(import_pulumi)
                wall, used = seconds_of(operation)
                pairs[name].append((wall, used, used / least))
    print(f"{'':9} {'wall':>8} {'processor':>10} {'× import pulumi':>16}")
    for name, measured in pairs.items():
        wall, used, ratio = (statistics.median(column) for column in zip(*measured, strict=True))
        spread = [ratio for _, _, ratio in measured]
        print(
            f"{name:9} {wall:>7.2f}s {used:>9.2f}s {ratio:>8.1f} "
            f"({min(spread):.1f}–{max(spread):.1f})"
        )


if __name__ == "__main__":
    main()
