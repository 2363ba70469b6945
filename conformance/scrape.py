"""What a node's metrics say, read from within the agent's pod."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from conformance.catalogue import SHARED
from conformance.pods import Workplace
from conformance.promise import DevicePromise
from conformance.site import Site

_URL = "http://127.0.0.1:9410/metrics"
_READ = f"import urllib.request as u; print(u.urlopen('{_URL}').read().decode())"
# A pod that has allocated so much uses no more than that, with what the driver needs itself.
HELD_MIB, MOST_MIB = 2048, 4096
# What a share is told to hold: nobody is told of a share's own memory.
_LITTLE_MIB = 16
_STARTED, _TOLD = 60, 20


@dataclass(frozen=True)
class Scrape:
    """One reading of a node's metrics."""

    text: str

    def values(self, name: str, **labels: str) -> list[float]:
        """Return the values of a metric's series with these labels."""
        return [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def lines(self, *parts: str) -> str:
        """Return the lines that contain all the parts."""
        return "\n".join(line for line in self.text.splitlines() if all(p in line for p in parts))


def scrape(site: Site, node: str) -> Scrape | None:
    """Read a node's metrics; None where it has no agent."""
    text = site.enter(node, "python3 -c %s", _READ)
    return None if text is None else Scrape(text)


@dataclass(frozen=True)
class Told:
    """What the metrics say while a pod of each kind of device holds memory, by resource."""

    metrics: Scrape
    pods: Mapping[str, str]


def told_of_pods(
    site: Site, pods: Workplace, node: str, promises: Sequence[DevicePromise]
) -> Told | None:
    """Hold memory on a device of each kind until the node's metrics name every pod.

    None where the node has no agent.
    """
    names = {one.resource: pods.start(node, _hog(one), one.resource) for one in promises}
    try:
        for name in names.values():
            pods.until(lambda: "allocated" in pods.log(name), _STARTED)  # noqa: B023
        deadline = time.monotonic() + _TOLD
        while True:
            found = scrape(site, node)
            if found is None:
                return None
            told = all(found.values("divvy_device_held", pod=name) for name in names.values())
            if told or time.monotonic() > deadline:
                return Told(found, names)
            time.sleep(1)
    finally:
        pods.remove(*names.values())


def _hog(promise: DevicePromise) -> tuple[str, ...]:
    mib = _LITTLE_MIB if promise.mode in SHARED else HELD_MIB
    return ("mem-hog", "--mib", str(mib), "--hold", "300")
