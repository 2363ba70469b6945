"""``Page``: one scrape of the agent, of gauges that all carry the node's name."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Gauge


class Page:
    """One scrape: gauges that all carry the node's name."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, labels: Sequence[str]) -> NodeGauge:
        """Make a gauge; its first label is the node."""
        return NodeGauge(Gauge(name, text, ["node", *labels], registry=self.registry), self.node)


class NodeGauge:
    """A gauge of this node."""

    def __init__(self, gauge: Gauge, node: str) -> None:
        self._gauge = gauge
        self._node = node

    def set(self, value: float, *labels: str) -> None:
        """Set it for these values of its other labels."""
        self._gauge.labels(self._node, *labels).set(value)
