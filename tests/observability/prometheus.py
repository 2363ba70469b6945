"""A real Prometheus beside the lab that finds the agents as a ServiceMonitor's would."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab.cluster.tools import PROMETHEUS

PROMTOOL = PROMETHEUS.bin / "promtool"


@dataclass(frozen=True)
class Prometheus:
    """A running server; times are seconds of the epoch."""

    address: str

    def ask(self, path: str, **arguments: str) -> Any:
        """Return the data of an API answer; raise on the server's refusal."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{query}") as answer:
            return json.load(answer)["data"]

    def series(self, expression: str, start: float, end: float) -> list[dict[str, Any]]:
        """Evaluate an expression at every second of a time."""
        asked = self.ask("query_range", query=expression, start=str(start), end=str(end), step="1s")
        results: list[dict[str, Any]] = asked["result"]
        return results


@contextmanager
def running(
    folder: Path, kubeconfig: Path, monitor: dict[str, Any], port: int
) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes what a ServiceMonitor selects, every second."""
    namespace = monitor["metadata"]["namespace"]
    (endpoint,) = monitor["spec"]["endpoints"]
    keep = {
        f"__meta_kubernetes_service_label_{_name(key)}": value
        for key, value in monitor["spec"]["selector"]["matchLabels"].items()
    }
    keep["__meta_kubernetes_endpointslice_port_name"] = endpoint["port"]
    job = {
        "job_name": "divvy",
        "honor_labels": endpoint["honorLabels"],
        "kubernetes_sd_configs": [
            {
                "role": "endpointslice",
                "kubeconfig_file": str(kubeconfig),
                "namespaces": {"names": [namespace]},
            }
        ],
        "relabel_configs": [
            {"action": "keep", "source_labels": [label], "regex": value}
            for label, value in keep.items()
        ],
    }
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    subprocess.run([PROMTOOL, "check", "config", file], check=True, capture_output=True)
    address = f"127.0.0.1:{port}"
    command = [
        PROMETHEUS.bin / "prometheus",
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            server = Prometheus(address)
            _until_ready(server, process, folder / "log")
            yield server
        finally:
            process.terminate()


def _name(label: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in label)


def _until_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(100):
        assert process.poll() is None, log.read_text()
        try:
            if server.ask("targets", state="active")["activeTargets"]:
                return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"Prometheus found no agent: {log.read_text()}")
