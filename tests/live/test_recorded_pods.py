"""What a real Prometheus tells of pods, from samples that it is given; no cluster is needed."""

from __future__ import annotations

import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from divvy.advise.trace import Trace, trace_of
from divvy.errors import CommandError
from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.live.cluster_reader import ClusterReader
from divvy.live.recorded_pods import recorded_pods
from lab.cluster.tools import PROMETHEUS

pytestmark = pytest.mark.lab
BEGIN, HOUR = 1_790_000_000, 3600
END = BEGIN + 30 * HOUR
# How long Prometheus takes a series for alive that samples from a file do not end.
LOOKBACK = 300
PORT = 19_463


def samples(name: str, begin: float, end: float, value: float, **labels: str) -> Iterator[str]:
    """Yield a sample a minute, as the text of metrics has them."""
    text = ",".join(f'{key}="{label}"' for key, label in labels.items())
    for moment in range(int(begin), int(end) + 1, 60):
        yield f"{name}{{{text}}} {value} {moment}"


def pod(
    name: str, begin: float, end: float, used: float = 3000, kind: str = "whole", **more: str
) -> Iterator[str]:
    """Yield what an agent tells of a pod with one device."""
    holder = {"node": "n1", "namespace": "team", "pod": name, **more}
    gpu = {"uuid": f"GPU-{name}", "resource": "nvidia.com/gpu", "kind": kind}
    yield from samples("divvy_allocated_devices", begin, end, 1, **holder, **gpu)
    yield from samples("divvy_allocated_memory_mib", begin, end, 40960, **holder, **gpu)
    yield from samples("divvy_allocated_cores", begin, end, 100, **holder, **gpu)
    device = {"uuid": f"GPU-{name}", "gpu": f"GPU-{name}", "mode": "whole"}
    yield from samples("divvy_device_held", begin, end, 1, **holder, **device)
    yield from samples("divvy_pod_memory_used_mib", begin, end, used, **holder, **device)
    dcgm = {"UUID": f"GPU-{name}", "gpu": "0"}
    yield from samples("DCGM_FI_DEV_GPU_UTIL", begin, end, 40, **dcgm)


def all_samples() -> Iterator[str]:
    outage = BEGIN + 20 * HOUR, BEGIN + 22 * HOUR
    for begin, end in ((BEGIN, outage[0]), (outage[1], END)):
        profile = {"node": "n1", "pool": "a100", "profile": "whole"}
        yield from samples("divvy_node_profile", begin, end, 1, **profile)
        # It runs on while its agent is away.
        yield from pod("long", begin, end)
    # One that ends with its agent, and one that ends before.
    yield from pod("lost", BEGIN + 19 * HOUR, outage[0])
    yield from pod("short", BEGIN + HOUR, BEGIN + 3 * HOUR, used=9000)
    waiting = {"namespace": "team", "pod": "short"}
    since = BEGIN + HOUR - 600
    yield from samples("namespace_pod:divvy_waiting:max", since, BEGIN + HOUR - 60, 1, **waiting)
    record = {"namespace": "team", "pod": "long", "kind": "whole"}
    name = "namespace_pod_kind:divvy_allocated_gpus:sum"
    yield from samples(name, BEGIN, BEGIN + HOUR, 1, **record)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a Prometheus that has the samples, and scrapes nothing."""
    folder = tmp_path_factory.mktemp("prometheus")
    by_name: dict[str, list[str]] = {}
    for line in all_samples():
        by_name.setdefault(line.partition("{")[0], []).append(line)
    text = "".join(
        f"# TYPE {name} gauge\n" + "\n".join(lines) + "\n" for name, lines in by_name.items()
    )
    (folder / "samples").write_text(f"{text}# EOF\n")
    (folder / "prometheus.yml").write_text("{}\n")
    promtool = [PROMETHEUS.bin / "promtool", "tsdb", "create-blocks-from", "openmetrics"]
    subprocess.run(
        [*promtool, folder / "samples", folder / "data"], check=True, capture_output=True
    )
    address = f"127.0.0.1:{PORT}"
    command = [
        PROMETHEUS.bin / "prometheus",
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            _until_ready(address, process, folder / "log")
            yield f"http://{address}"
        finally:
            process.terminate()


def _until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(150):
        assert process.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(f"http://{address}/-/ready")
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise AssertionError(log.read_text())


def read(where: str) -> Trace:
    with Client(ClusterConfig("https://api.example")) as http:
        return trace_of(recorded_pods(ClusterReader(http), where, "prod", BEGIN, END))


def test_reads_pods_with_what_they_used_and_how_long_they_waited(prometheus: str) -> None:
    trace = read(prometheus)
    pods = {pod.name: pod for pod in trace.pods}
    assert set(pods) == {"long", "lost", "short"}
    short = pods["short"]
    assert (short.pool, short.kind, short.devices) == ("a100", "whole", 1)
    assert (short.given_mib, short.given_cores) == (40960, 100)
    assert (short.peak_mib, short.cores, short.peak_cores) == (9000, 40, 40)
    assert short.begin == pytest.approx(BEGIN + HOUR, abs=60)
    assert short.end == pytest.approx(BEGIN + 3 * HOUR, abs=LOOKBACK + 60)
    assert short.waited == pytest.approx(600, abs=60)
    assert pods["long"].waited == 0
    assert pods["long"].end is None


def test_what_ends_with_its_agent_may_have_run_until_the_agent_came_back(prometheus: str) -> None:
    trace = read(prometheus)
    pods = {pod.name: pod for pod in trace.pods}
    back = BEGIN + 22 * HOUR
    assert pods["lost"].end == pytest.approx(back, abs=LOOKBACK)
    # Of a third of its life nothing was seen.
    assert pods["lost"].peak_mib is None
    # Two hours of thirty: what was seen stands for it.
    assert pods["long"].peak_mib == 3000
    ((begin, end),) = trace.gaps
    assert begin == pytest.approx(BEGIN + 20 * HOUR, abs=LOOKBACK + 300)
    assert end == pytest.approx(back, abs=300)


@pytest.mark.parametrize("data", [{}, {"result": 5}, {"result": [{"metric": {}}]}])
def test_reports_what_is_no_prometheus(monkeypatch: pytest.MonkeyPatch, data: Any) -> None:
    def get(url: str, **_: float) -> httpx2.Response:
        return httpx2.Response(200, json={"data": data}, request=httpx2.Request("GET", url))

    monkeypatch.setattr("divvy.live.prometheus.httpx2.get", get)
    with pytest.raises(CommandError, match="is it a Prometheus"):
        read("http://prometheus")
