"""Who used how much over some time: by namespace, from what Prometheus keeps of the agents."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.model.problems import printable

# A sample stands for so many minutes.
_STEP = 5
_SINCE = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
# A Prometheus without `honor_labels` keeps the pod's namespace under the second name, and has the
# agent's under the first.
_NAMESPACE = "namespace, exported_namespace"
_MEMORY = "divvy_pod_memory_used_mib|divvy_share_memory_used_mib"


@dataclass(frozen=True)
class Sample:
    """What Prometheus has summed up for a namespace, and perhaps a resource."""

    namespace: str
    resource: str
    value: float


@dataclass(frozen=True)
class NamespaceUse:
    """What pods of a namespace held: device hours by resource, and memory in GiB hours."""

    namespace: str
    device_hours: Mapping[str, float]
    memory_gib_hours: float | None


def is_duration(text: str) -> bool:
    """Tell whether a text is a duration such as 12h, 7d or 4w, and a sample's at least."""
    match = _SINCE.fullmatch(text)
    return match is not None and (match[2] != "m" or int(match[1]) >= _STEP)


def device_hours_query(since: str) -> str:
    """Return the PromQL query for the hours that devices were held, by namespace and resource.

    The resource of what was allocated by claims is ``claims``.
    """
    over = f"sum_over_time(divvy_allocated_devices[{since}:{_STEP}m])"
    return f"sum by ({_NAMESPACE}, resource) ({over}) * {_STEP} / 60"


def memory_query(since: str) -> str:
    """Return the PromQL query for memory in use times hours, by namespace, in GiB hours."""
    over = f'sum_over_time({{__name__=~"{_MEMORY}"}}[{since}:{_STEP}m])'
    return f"sum by ({_NAMESPACE}) ({over}) * {_STEP} / 60 / 1024"


def samples(answer: Any) -> tuple[Sample, ...]:
    """Read the answer to a query; raises what Python raises where it is none."""
    return tuple(map(_sample, answer["result"]))


def _sample(series: Mapping[str, Any]) -> Sample:
    labels, value = series["metric"], float(series["value"][1])
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a sum")
    namespace = labels.get("exported_namespace") or labels.get("namespace", "")
    return Sample(printable(namespace), printable(labels.get("resource", "")), value)


def use_by_namespace(hours: Sequence[Sample], memory: Sequence[Sample]) -> tuple[NamespaceUse, ...]:
    """Return what both answers say: the namespace with the most device hours comes first."""
    held: dict[str, dict[str, float]] = {}
    for sample in hours:
        by_resource = held.setdefault(sample.namespace, {})
        by_resource[sample.resource] = by_resource.get(sample.resource, 0.0) + sample.value
    used: dict[str, float] = {}
    for sample in memory:
        used[sample.namespace] = used.get(sample.namespace, 0.0) + sample.value
    uses = [
        NamespaceUse(namespace, dict(sorted(held.get(namespace, {}).items())), used.get(namespace))
        for namespace in {*held, *used}
    ]
    return tuple(sorted(uses, key=lambda use: (-sum(use.device_hours.values()), use.namespace)))
