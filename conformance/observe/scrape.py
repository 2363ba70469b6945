"""The metrics of a node, read from within the agent's pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from conformance.check import SHARED
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.pods import PodNamespace
from conformance.promise import DevicePromise
from divvy.kube.kind import ENDPOINT_SLICE
from divvy.model.api_names import AGENT, METRICS_PORT

_URL = f"http://127.0.0.1:{METRICS_PORT}/metrics"
_READ = f"import urllib.request as u; print(u.urlopen('{_URL}').read().decode())"
# A pod that has allocated so much uses no more than that, with what the driver needs itself.
HELD_MIB, MAX_MIB = 2048, 4096
# What a replica holds: no metric says how much memory one replica uses.
_LITTLE_MIB = 16
_STARTED, _REPORTED = 60, 20
_HELD = "divvy_device_held"


@dataclass(frozen=True)
class Scrape:
    """One reading of a node's metrics."""

    text: str

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of a metric's series with these labels."""
        return [value for _, value in self._samples(name, labels)]

    def series(self, name: str, **labels: str) -> list[Mapping[str, str]]:
        """Return the labels of a metric's series with these labels."""
        return [series for series, _ in self._samples(name, labels)]

    def label_values(self, name: str, label: str) -> frozenset[str]:
        """Return the different values that a label has in a metric's series."""
        return frozenset(series[label] for series, _ in self._samples(name, {}) if label in series)

    def lines(self, *parts: str) -> str:
        """Return the lines that contain all the parts."""
        return "\n".join(line for line in self.text.splitlines() if all(p in line for p in parts))

    def _samples(
        self, name: str, labels: Mapping[str, str]
    ) -> Iterator[tuple[Mapping[str, str], float]]:
        for family in text_string_to_metric_families(self.text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    yield sample.labels, sample.value


def scrape(target: ClusterUnderTest, node: str) -> Scrape | None:
    """Read a node's metrics; None if it has no agent."""
    text = target.enter(node, "python3 -c %s", _READ)
    return None if text is None else Scrape(text)


def service_address(target: ClusterUnderTest, node: str) -> str | None:
    """Return the address to which the agents' Service leads for a node, None for nowhere."""
    labels = {"kubernetes.io/service-name": AGENT}
    for endpoint_slice in target.api.find(
        ENDPOINT_SLICE, namespace=target.cluster.namespace, labels=labels
    ):
        for endpoint in endpoint_slice.get("endpoints") or []:
            if endpoint.get("nodeName") == node and endpoint["conditions"].get("ready"):
                return str(endpoint["addresses"][0])
    return None


@dataclass(frozen=True)
class MetricsSample:
    """What the metrics say while a pod of each kind of device holds memory, by resource."""

    metrics: Scrape
    pods: Mapping[str, str]


def sample_metrics(
    target: ClusterUnderTest, pods: PodNamespace, node: str, promises: Sequence[DevicePromise]
) -> MetricsSample | None:
    """Hold memory on a device of each kind until the node's metrics name every pod.

    None if the node has no agent.
    """
    names: dict[str, str] = {}
    try:
        for promise in promises:
            names[promise.resource] = pods.start(node, _hog(promise), promise.resource)
        for name in names.values():
            pods.until(lambda: "allocated" in pods.log(name), _STARTED)  # noqa: B023

        def is_complete(page: Scrape | None) -> bool:
            pods_named = (page is None or page.values(_HELD, pod=name) for name in names.values())
            return all(pods_named)

        metrics = last_look(lambda: scrape(target, node), is_complete, _REPORTED)
        return None if metrics is None else MetricsSample(metrics, names)
    finally:
        pods.remove(*names.values())


def sample_sharers(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise
) -> tuple[list[str], list[Mapping[str, str]]] | None:
    """Hold one replica more than there are devices, so that two pods share one.

    Return the pods, and their series once the metrics name them all; None without an agent.
    """
    devices = sum(
        device.resource == promise.resource and device.share == 0
        for device in promise.node.plan.devices
    )
    names: list[str] = []
    try:
        for _ in range(devices + 1):
            names.append(pods.start(promise.node.name, _hog(promise), promise.resource))
        for name in names:
            pods.until(lambda: "allocated" in pods.log(name), _STARTED)  # noqa: B023

        def look() -> list[Mapping[str, str]] | None:
            page = scrape(target, promise.node.name)
            if page is None:
                return None
            return page.series(_HELD, resource=promise.resource, namespace=pods.name)

        def is_complete(series: list[Mapping[str, str]] | None) -> bool:
            return series is None or {labels["pod"] for labels in series} >= set(names)

        series = last_look(look, is_complete, _REPORTED)
        return None if series is None else (names, series)
    finally:
        pods.remove(*names)


def _hog(promise: DevicePromise) -> tuple[str, ...]:
    mib = _LITTLE_MIB if promise.mode in SHARED else HELD_MIB
    return ("mem-hog", "--mib", str(mib), "--hold", "300")
