"""Prometheus metrics of the template maker."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from divvy.claim_templates.maker import Maker


def metrics_page(maker: Maker) -> bytes:
    """Render all metrics now."""
    registry = CollectorRegistry()
    registry.register(_Figures(maker))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, maker: Maker) -> None:
        self._maker = maker

    def collect(self) -> Iterator[Metric]:
        maker = self._maker
        yield GaugeMetricFamily(
            "divvy_claim_templates", "Templates that there are.", maker.templates.live
        )
        yield GaugeMetricFamily(
            "divvy_claim_templates_waiting",
            "Templates that pods name and that are not there.",
            len(maker.templates.waiting()),
        )
        yield GaugeMetricFamily(
            "divvy_claim_templates_waiting_pods",
            "Pods that wait because their namespace has too many sizes in work.",
            sum(pods for pods, _ in maker.templates.over().values()),
        )
        for name, text, count in (
            ("created", "Templates created since the start.", maker.created),
            ("deleted", "Templates deleted since the start.", maker.deleted),
            (
                "failures",
                "Requests that have failed since the start.",
                maker.failed,
            ),
        ):
            yield CounterMetricFamily(f"divvy_claim_templates_{name}", text, count)
