"""Measure fleets of the sizes given, and print a table; `--keep` writes the figures of docs/."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from divvy.model import generation
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP
from lab.benchmarks.fleet.agents import PATIENCE, Fleet, until
from lab.benchmarks.fleet.cluster import (
    AgentPod,
    Counts,
    ServerProcess,
    make_nodes,
    pods_becoming_ready,
    until_ready,
    write_kubeconfigs,
)
from lab.benchmarks.fleet.figures import Figures, Spread, keep, table
from lab.benchmarks.fleet.links import NAMESPACE
from lab.benchmarks.fleet.stack import Stack
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import KUBERNETES
from tests.bare_cluster import bare_cluster
from tests.claim_templates.stock_scheduler import running_scheduler
from tests.render.objects.claims.api_server import ApiServer

SIZES = (100, 1000, 5000)
FIGURES_FILE = REPOSITORY / "docs/fleets/figures.json"
IDLE_SECONDS = 120.0
OUTAGE_SECONDS = 20.0


@contextlib.contextmanager
def _config_changes(server: ApiServer) -> Iterator[dict[str, float]]:
    """Note when each configuration was first seen in the API, by its generation."""
    seen: dict[str, float] = {}
    key = CONFIG_KEY.replace(".", r"\.")
    command = [
        *(str(KUBERNETES.bin / "kubectl"), f"--kubeconfig={server.cluster.kubeconfig}"),
        *("get", "configmap", CONFIG_MAP, f"--namespace={NAMESPACE}", "--watch"),
        f'--output=jsonpath={{.data.{key}}}{{"\\n"}}',
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watch:

        def listen() -> None:
            assert watch.stdout is not None
            for line in watch.stdout:
                seen.setdefault(generation(line.rstrip("\n")), time.monotonic())

        thread = threading.Thread(target=listen)
        thread.start()
        until(lambda: bool(seen), "the configuration is not seen")
        try:
            yield seen
        finally:
            watch.kill()
            thread.join()


def _first_up(stack: Stack, server: ApiServer, fleet: Fleet, nodes: list[str], at: Path) -> float:
    """Deploy; the links begin when each agent has its pod."""
    began = time.monotonic()
    stack.write("whole")
    up = stack.start("up", "--yes")
    with pods_becoming_ready(server, len(nodes)) as pods:
        agent_pods: dict[str, AgentPod] = pods
        until(lambda: len(agent_pods) == len(nodes) or up.poll() is not None, "pods are missing")
        write_kubeconfigs(server, agent_pods, at)
        fleet.make()
        fleet.begin()
        output, _ = up.communicate(timeout=PATIENCE)
    assert up.returncode == 0, output
    took = time.monotonic() - began
    # What follows is measured from rest.
    followed = fleet.followed
    until(lambda: len(nodes) in map(len, followed.values()), "not every node has begun")
    return took


def measure(count: int) -> Figures:
    """Measure a fleet of a size."""
    figures = Figures(
        count,
        date=datetime.now(UTC).date().isoformat(),
        processors=os.cpu_count() or 0,
        load=round(os.getloadavg()[0], 1),
    )
    with (
        tempfile.TemporaryDirectory(prefix="fleet-") as text,
        bare_cluster() as bare,
        contextlib.closing(ApiServer(bare)) as server,
        running_scheduler(server, Path(text)),
    ):
        folder = Path(text)
        nodes = make_nodes(server, count)
        _say(f"{count} nodes are made")
        stack = Stack(folder / "project", server, count)
        fleet = Fleet(folder, server, nodes)
        try:
            figures.first_up = _first_up(stack, server, fleet, nodes, folder)
            _say(f"up for the first time: {figures.first_up:.1f} s")
            _change(stack, server, fleet, figures)
            _idle(server, figures)
            figures.diff_live, _ = stack.run("diff", "--live")
            figures.top, _ = stack.run("top", "--once")
            _outages(server, fleet, figures)
        finally:
            fleet.end()
    return figures


def _change(stack: Stack, server: ApiServer, fleet: Fleet, figures: Figures) -> None:
    stack.write("slices")
    before, links = Counts.of(server), fleet.processor_seconds()
    with _config_changes(server) as changes:
        figures.up, _ = stack.run("up", "--yes")
    newest, at = max(changes.items(), key=lambda moment: moment[1])
    followed = fleet.followed
    until(lambda: len(followed.get(newest, ())) == figures.nodes, "not every node follows")
    after = Counts.of(server)
    figures.follow = Spread.of([moment - at for moment in fleet.followed[newest]])
    nodes = figures.nodes
    figures.change_links_ms_per_node = (fleet.processor_seconds() - links) / nodes * 1000
    figures.change_requests_per_node = (after.requests - before.requests) / nodes
    figures.change_watch_bytes_per_node = (after.watch_bytes - before.watch_bytes) / nodes
    used = after.processor_seconds - before.processor_seconds
    figures.change_server_ms_per_node = used / nodes * 1000
    _say(f"up with another profile: {figures.up:.1f} s; the last node {figures.follow.last:.1f} s")


def _idle(server: ApiServer, figures: Figures) -> None:
    before, began = Counts.of(server), time.monotonic()
    time.sleep(IDLE_SECONDS)
    after, seconds = Counts.of(server), time.monotonic() - began
    whole = figures.nodes * seconds
    figures.idle_requests_per_node_second = (after.requests - before.requests) / whole
    used = after.processor_seconds - before.processor_seconds
    figures.idle_server_ms_per_node_second = used * 1000 / whole
    figures.server_mib = after.resident_bytes / 2**20


def _outages(server: ApiServer, fleet: Fleet, figures: Figures) -> None:
    fleet.end()
    fleet.make()
    figures.restart = Spread.of(_touched(fleet, fleet.begin(), figures.nodes))
    _say(f"all agents start at once: {figures.restart.last:.1f} s")
    process = ServerProcess(server)
    process.end()
    time.sleep(OUTAGE_SECONDS)
    # Links that know the present state say so once; new ones would be the case above.
    fleet.touched.clear()
    process.start()
    until_ready(server)
    began = time.monotonic()
    until(lambda: _watches(server) >= 2 * figures.nodes, "not every watch has been reopened")
    figures.outage = time.monotonic() - began
    process.end()


def _watches(server: ApiServer) -> float:
    """Return how many watches of nodes and ConfigMaps the server has."""
    text = server.cluster.kubectl("get", "--raw=/metrics")
    return sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("apiserver_longrunning_requests{")
        and 'verb="WATCH"' in line
        and ('resource="nodes"' in line or 'resource="configmaps"' in line)
    )


def _touched(fleet: Fleet, began: float, count: int) -> list[float]:
    until(lambda: len(fleet.touched) == count, "not every agent reaches the API")
    return [moment - began for moment in fleet.touched]


def _say(words: str) -> None:
    print(f"  {words} (load {os.getloadavg()[0]:.1f})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.fleet")
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument(
        "--keep", action="store_true", help=f"in {FIGURES_FILE.relative_to(REPOSITORY)}"
    )
    arguments = parser.parse_args()
    results = []
    for size in arguments.sizes:
        print(f"{size} nodes", flush=True)
        results.append(measure(size))
        if arguments.keep:
            keep(FIGURES_FILE, results[-1])
    print(table(results))


if __name__ == "__main__":
    main()
