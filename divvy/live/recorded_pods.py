"""Asks a Prometheus which pods held GPUs, from when to when, and how much of them they used."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any
from urllib.parse import urlencode

from divvy.advise.trace import Recording, heading
from divvy.live.cluster_reader import ClusterReader
from divvy.live.prometheus import ask_prometheus
from divvy.model.api_names import GPUS_RECORD, WAITING_RECORD
from divvy.model.problems import printable

_DAY, _SECONDS = 86_400.0, 60.0
# A sample a minute says from when to when; one in five minutes whether a node was seen at all.
_STEP, _NODE_STEP = 60.0, 300.0
_BY = "by (namespace, pod, node, resource, kind)"
_DEVICES = f"sum {_BY} (divvy_allocated_devices)"
# Of a pod that has a GPU to itself, the GPU's utilisation is its own.
_UTILISATION = (
    'max by (namespace, pod) (divvy_device_held{mode="whole"} * on (gpu) group_left () '
    'max by (gpu) (label_replace(DCGM_FI_DEV_GPU_UTIL, "gpu", "$1", "UUID", "(.+)")))'
    " or sum by (namespace, pod) (divvy_container_gpu_utilisation)"
)
_MEMORY = "divvy_pod_memory_used_mib", "divvy_share_memory_used_mib"


def _memory(over_time: str) -> str:
    parts = " or ".join(over_time.format(f"{name}[{{range}}]") for name in _MEMORY)
    return f"max by (namespace, pod) ({parts})"


def _of_each(name: str) -> str:
    return f"max_over_time((sum {_BY} ({name}) / {_DEVICES})[{{range}}:1m])"


# Of each pod and what it holds, then of each pod; by the field of a recording.
_OF_DEVICES = {
    "devices": f"max_over_time(({_DEVICES})[{{range}}:1m])",
    "begin": f"min_over_time(timestamp({_DEVICES})[{{range}}:1m])",
    "end": f"max_over_time(timestamp({_DEVICES})[{{range}}:1m])",
    "looks": f"count_over_time(({_DEVICES})[{{range}}:1m])",
    "givenMiB": _of_each("divvy_allocated_memory_mib"),
    "givenCores": _of_each("divvy_allocated_cores"),
}
_OF_PODS = {
    "peakMiB": _memory("max_over_time({})"),
    "p95MiB": _memory("quantile_over_time(0.95, {})"),
    "p50Cores": f"quantile_over_time(0.5, ({_UTILISATION})[{{range}}:1m])",
    "p95Cores": f"quantile_over_time(0.95, ({_UTILISATION})[{{range}}:1m])",
    "peakCores": f"max_over_time(({_UTILISATION})[{{range}}:1m])",
    "waitedSeconds": f"{_STEP:.0f} * sum_over_time({WAITING_RECORD}[{{range}}])",
}
_SUMS = ("looks", "waitedSeconds")
# Pod and namespace, and then node, resource and kind.
_Key = tuple[str, ...]
_POD, _DEVICE = ("namespace", "pod"), ("namespace", "pod", "node", "resource", "kind")


def recorded_pods(
    reader: ClusterReader, where: str, cluster: str, begin: float, end: float
) -> Recording:
    """Return a recording of the time between two others; each failure is one error."""
    prometheus = _Prometheus(reader, where)
    pods: dict[_Key, dict[str, Any]] = {}
    of_pods: dict[_Key, dict[str, float]] = {}
    pools: dict[str, str] = {}
    observed: dict[str, list[float]] = defaultdict(list)
    knows_waiting = False
    until = begin
    while until < end:
        since, until = until, min(until + _DAY, end)
        for field, query in _OF_DEVICES.items():
            for key, value in prometheus.values(query, _DEVICE, since, until):
                _merge(pods.setdefault(key, {}), field, value)
        for field, query in _OF_PODS.items():
            for key, value in prometheus.values(query, _POD, since, until):
                _merge(of_pods.setdefault(key, {}), field, value)
        profiles = "max by (node, pool) (max_over_time(divvy_node_profile[{range}]))"
        for (node, pool), _ in prometheus.values(profiles, ("node", "pool"), since, until):
            pools[node] = pool
        records = f"count(count_over_time({GPUS_RECORD}[{{range}}]))"
        knows_waiting |= bool(prometheus.values(records, (), since, until))
        for node, times in prometheus.times("max by (node) (divvy_node_profile)", since, until):
            observed[node] += times
    documents = [
        _pod(key, {**pod, **of_pods.get(key[:2], {})}, pools, observed, end, knows_waiting)
        for key, pod in pods.items()
        if {"devices", "begin", "end"} <= pod.keys()
    ]
    documents.sort(key=lambda document: (document["begin"], document["namespace"], document["pod"]))
    return Recording(heading(cluster, begin, end, _gaps(observed, begin, end)), documents)


def _merge(known: dict[str, Any], field: str, value: float) -> None:
    if field not in known:
        known[field] = value
    elif field in _SUMS:
        known[field] += value
    else:
        known[field] = min(known[field], value) if field == "begin" else max(known[field], value)


def _pod(
    key: _Key,
    seen: Mapping[str, float],
    pools: Mapping[str, str],
    observed: Mapping[str, list[float]],
    until: float,
    knows_waiting: bool,
) -> dict[str, Any]:
    """Return a pod of the recording.

    One whose node was not seen any longer when it ended may have run until the node was seen again.
    """
    namespace, name, node, resource, kind = key
    begin, last = seen["begin"], seen["end"]
    looks = seen.get("looks", 0.0) * _STEP
    later = _next(observed.get(node, []), last)
    end: float | None = last
    if later is None or until - last <= 2 * _STEP:
        end = None
    elif later - last > 2 * _NODE_STEP:
        end = later
    life = (until if end is None else end) - begin
    waited = seen.get("waitedSeconds", 0.0 if knows_waiting else None)
    return {
        "namespace": namespace,
        "pod": name,
        "node": node,
        "pool": pools.get(node, ""),
        "resource": resource,
        "kind": kind,
        "devices": int(seen["devices"]),
        "begin": begin,
        "end": end,
        "waitedSeconds": waited,
        "unseenSeconds": max(life - looks - 2 * _STEP, 0.0),
        **{
            field: seen.get(field)
            for field in (*_OF_DEVICES, *_OF_PODS)
            if field.endswith(("MiB", "Cores"))
        },
    }


def _next(times: list[float], moment: float) -> float | None:
    """Return the first of some times after a moment, None if there is none."""
    number = bisect_right(times, moment)
    return times[number] if number < len(times) else None


def _gaps(
    observed: Mapping[str, Iterable[float]], begin: float, end: float
) -> Iterator[tuple[float, float]]:
    """Yield the times in which no node was seen."""
    times = sorted({time for times in observed.values() for time in times})
    for last, following in zip((begin, *times), (*times, end), strict=True):
        if following - last > 2 * _NODE_STEP:
            yield last, following


class _Prometheus:
    """Asks for one time after the other."""

    def __init__(self, reader: ClusterReader, where: str) -> None:
        self._ask = partial(ask_prometheus, reader, where)

    def values(
        self, query: str, labels: Sequence[str], since: float, until: float
    ) -> list[tuple[_Key, float]]:
        """Return what a query tells of a time at its end: labels, value."""
        text = query.replace("{range}", f"{max(int(until - since), 1)}s")
        path = f"/api/v1/query?{urlencode({'query': text, 'time': until})}"

        def read(data: Any) -> list[tuple[_Key, float]]:
            values = [
                (
                    tuple(printable(series["metric"].get(label, "")) for label in labels),
                    float(series["value"][1]),
                )
                for series in data["result"]
            ]
            return [(key, value) for key, value in values if isfinite(value)]

        return self._ask(path, _SECONDS, read)

    def times(self, query: str, since: float, until: float) -> list[tuple[str, list[float]]]:
        """Return of each node when a query had a value for it."""
        parameters = {"query": query, "start": since, "end": until, "step": _NODE_STEP}

        def read(data: Any) -> list[tuple[str, list[float]]]:
            return [
                (printable(series["metric"]["node"]), [float(time) for time, _ in series["values"]])
                for series in data["result"]
            ]

        return self._ask(f"/api/v1/query_range?{urlencode(parameters)}", _SECONDS, read)
