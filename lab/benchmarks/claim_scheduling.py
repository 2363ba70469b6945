"""What claims cost the stock scheduler: pods a second and processor time a pod, by cluster size.

A real API server and scheduler; nodes are objects with eight A100 each, and the slices that an
agent would publish for them. Each figure is of so many pods, or of those that were bound in so many
seconds, whichever comes first: ``--nodes 1000 --profile by-size --pods 500 --seconds 120``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.bare_cluster import bare_cluster
from tests.claim_templates.stock_scheduler import StockScheduler, running_scheduler
from tests.claim_walk.cluster import published
from tests.claim_walk.hardware import A100, Gpu
from tests.render.objects.claims.api_server import ApiServer, policies_of

# What `make bench` measures: on-demand slices of 1,000 nodes are 125 MB, written in minutes.
SIZES = {"by-size": (10, 100, 1000), "on-demand": (10, 100)}
GPUS = 8
PODS, SECONDS = 200, 60.0
WRITERS = 8
_CLEANED_UP_SECONDS = 300.0
_RESOURCES = "/apis/resource.k8s.io/v1"
_PODS = "/api/v1/namespaces/default/pods"
_CLAIMS = f"{_RESOURCES}/namespaces/default/resourceclaims"
_SHARE = {"memory": "4Gi", "cores": "10"}
# Profile of the nodes → the claims that are timed: device class, capacity requests.
ROWS: dict[str, dict[str, tuple[str, dict[str, str]]]] = {
    "by-size": {"share": ("divvy-share", _SHARE)},
    "on-demand": {
        "share": ("divvy-share", _SHARE),
        "whole": ("divvy-gpu", {}),
        "1g.5gb": ("divvy-mig-1g.5gb", {}),
    },
}


@dataclass(frozen=True)
class Timed:
    """Pods that were bound in some seconds, and the scheduler's processor time meanwhile."""

    pods: int
    seconds: float
    processor_seconds: float

    @property
    def words(self) -> str:
        """Return the figures as a row of the table has them, with the machine's load."""
        load = f"load {os.getloadavg()[0]:.0f}"
        if not self.pods:
            used = f"{self.processor_seconds:.0f} s of processor"
            return f"{0:8.1f} {'':>14}   none in {self.seconds:.0f} s, {used}, {load}"
        rate = self.pods / self.seconds
        milliseconds = self.processor_seconds / self.pods * 1000
        return f"{rate:8.1f} {milliseconds:14.1f}   {self.pods} in {self.seconds:.0f} s, {load}"


def _make_nodes(server: ApiServer, profile: str, count: int) -> int:
    """Make nodes and their slices; return how many bytes the slices have as JSON."""
    quantities = {"pods": "110", "cpu": "100", "memory": "100Gi"}
    ready = {"type": "Ready", "status": "True"}

    def make(number: int) -> int:
        name = f"node-{number}"
        node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        status = {"allocatable": quantities, "capacity": quantities, "conditions": [ready]}
        assert server.send("POST", "/api/v1/nodes", node).status == 201
        created = server.send("GET", f"/api/v1/nodes/{name}").body
        created["spec"].pop("taints", None)
        created = server.send("PUT", f"/api/v1/nodes/{name}", created).body
        assert server.send(
            "PUT", f"/api/v1/nodes/{name}/status", created | {"status": status}
        ).status
        size = 0
        gpus = [
            Gpu(f"GPU-{number:05}-{index}", index, name, A100, profile) for index in range(GPUS)
        ]
        for slice_name, spec in published(name, gpus).items():
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": slice_name},
                "spec": spec,
            }
            size += len(json.dumps(body))
            answer = server.send("POST", f"{_RESOURCES}/resourceslices", body)
            assert answer.status == 201, answer.body
        return size

    with ThreadPoolExecutor(WRITERS) as writers:
        return sum(writers.map(make, range(count)))


def _timed(
    server: ApiServer,
    scheduler: StockScheduler,
    kind: tuple[str, dict[str, str]],
    pods: int,
    seconds: float,
) -> Timed:
    """Create pods with a claim each, and count who is bound, until all are or the time is over."""
    bound: list[float] = []
    with _watching(server, bound):
        used = _processor_seconds(scheduler)
        began = time.monotonic()
        over = began + seconds

        def create(number: int) -> None:
            if time.monotonic() < over:
                _create(server, number, *kind)

        with ThreadPoolExecutor(WRITERS) as writers:
            list(writers.map(create, range(pods)))
        while len(bound) < pods and time.monotonic() < over:
            time.sleep(0.05)
        placed = list(bound)
        ended = placed[-1] if len(placed) == pods else time.monotonic()
        return Timed(len(placed), ended - began, _processor_seconds(scheduler) - used)


def _create(server: ApiServer, number: int, device_class: str, capacity: dict[str, str]) -> None:
    exactly: dict[str, Any] = {"deviceClassName": device_class}
    if capacity:
        exactly["capacity"] = {"requests": capacity}
    metadata = {"name": f"pod-{number}", "namespace": "default"}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }
    asks = {"name": "gpu", "resourceClaimName": f"pod-{number}"}
    container = {"name": "main", "image": "image", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "resourceClaims": [asks]},
    }
    assert server.send("POST", _CLAIMS, claim).status == 201
    assert server.send("POST", _PODS, pod).status == 201


def _clean_up(server: ApiServer) -> None:
    for path, parameters in ((_PODS, {"gracePeriodSeconds": "0"}), (_CLAIMS, {})):
        server.send("DELETE", path, **parameters)
        # The scheduler goes on with its queue meanwhile, and holds up the rest.
        server.until(lambda at=path: not server.send("GET", at).body["items"], _CLEANED_UP_SECONDS)


@contextlib.contextmanager
def _watching(server: ApiServer, bound: list[float]) -> Iterator[None]:
    """Note the time at which each pod is bound."""
    seen: set[str] = set()
    over = threading.Event()

    def follow() -> None:
        # The server ends the watch of a reader that is late: a new one begins with all there is.
        while not over.is_set():
            with contextlib.suppress(httpx2.HTTPError):
                for event in server.events(_PODS):
                    note(event)
                    if over.is_set():
                        return

    def note(event: dict[str, Any]) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        if pod["spec"].get("nodeName") and event["type"] != "DELETED" and name not in seen:
            seen.add(name)
            bound.append(time.monotonic())

    threading.Thread(target=follow, daemon=True).start()
    yield
    over.set()


def _processor_seconds(scheduler: StockScheduler) -> float:
    fields = Path(f"/proc/{scheduler.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(profile: str, size: int, pods: int, seconds: float) -> None:
    """Print the rows of one cluster."""
    cluster = {
        "profiles": {"on-demand": {"claims": {"shares": {}, "mig": ["1g.5gb"]}}},
        "pools": {"all": {"profile": "on-demand"}},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        bare_cluster("resourceclaim-controller") as bare,
        contextlib.closing(ApiServer(bare)) as server,
    ):
        classes = [item for item in policies_of(cluster) if item["kind"] == "DeviceClass"]
        server.apply(*classes)
        written = _make_nodes(server, profile, size)
        where = f"{profile}, {size:,} nodes, {written / 1e6:.1f} MB"
        with running_scheduler(server, Path(folder)) as scheduler:
            for number, (name, kind) in enumerate(ROWS[profile].items()):
                if number:
                    _clean_up(server)
                timed = _timed(server, scheduler, kind, min(pods, size * GPUS), seconds)
                print(f"{where:<33} {name:<7} {timed.words}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.claim_scheduling")
    parser.add_argument("--nodes", type=int, help="nodes of the cluster, not all sizes")
    parser.add_argument("--profile", choices=ROWS, help="profile of its nodes, not each of them")
    parser.add_argument("--pods", type=int, default=PODS, help="pods of each figure at most")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="and its time at most")
    chosen = parser.parse_args(arguments)
    columns = f"{'pods':<7} {'a second':>8} {'processor, ms':>14}   how many, in which time"
    print(f"{'nodes of 8 GPUs, their slices':<33} {columns}")
    for profile in (chosen.profile,) if chosen.profile else ROWS:
        for size in (chosen.nodes,) if chosen.nodes else SIZES[profile]:
            _measure(profile, size, chosen.pods, chosen.seconds)


if __name__ == "__main__":
    main()
