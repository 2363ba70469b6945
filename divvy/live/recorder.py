"""Adds what `divvy top` sees to a recording: who held what, when, and used how much of it."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Any

from divvy.advise.trace import (
    CLAIMS,
    Kind,
    Recording,
    heading,
    read_recording,
    recording_text,
)
from divvy.atomic_file import replace_file
from divvy.errors import fail
from divvy.live.usage import Holding, Usage, UsedGpu

# Without a look for so long (s), nobody knows what was in between.
_GAP = 600.0
# A live view looks every few seconds, and the file may be long.
_PAUSE = 60.0
# The compute of a device is counted in so many equal parts, of which a percentile is read.
_PARTS = 20
_MODE = 0o644


class Recorder:
    """Keeps a recording in a file; what it does not know of it is kept."""

    def __init__(self, path: Path) -> None:
        self._path, self._written = path, float("-inf")
        self._recording: Recording | None = None
        if path.exists():
            try:
                with path.open(encoding="utf-8") as lines:
                    recording = read_recording(lines, str(path))
                    pods = [dict(pod) for pod in recording.pods if pod]
                    self._recording = Recording(recording.heading, pods)
            except (OSError, UnicodeDecodeError) as error:
                fail(f"cannot read {path}: {error}")

    def add(self, usage: Usage) -> None:
        """Add a look, and write the file if the last time was a while ago."""
        self._recording = with_look(self._recording, usage)
        if monotonic() - self._written >= _PAUSE:
            self.write()

    def write(self) -> None:
        """Write the file."""
        if self._recording is None:
            return
        try:
            replace_file(self._path, recording_text(self._recording).encode(), _MODE)
        except OSError as error:
            fail(f"cannot write {self._path}: {error.strerror}")
        self._written = monotonic()


def with_look(recording: Recording | None, usage: Usage) -> Recording:
    """Return a recording with one more look; None: the first one."""
    now = datetime.fromisoformat(usage.read).timestamp()
    first = recording is None
    head = dict(heading(usage.cluster, now, now) if recording is None else recording.heading)
    pods = [] if recording is None else list(recording.pods)
    passed = now - head["end"]
    if passed > _GAP:
        head["gaps"] = [*head["gaps"], [head["end"], now]]
    waiting = {pod.full_name: _created(pod.created, now) for pod in usage.waiting}
    waited = head.get("waiting") or {}
    silent = {node.name for node in usage.nodes if node.unknown}
    current = dict(_held(usage))
    kept = []
    for pod in pods:
        key = pod.get("namespace"), pod.get("pod"), pod.get("resource")
        if pod.get("end") is not None:
            kept.append(pod)
        elif key in current:
            kept.append(_continued(pod, current.pop(key), passed))
        elif pod.get("node") in silent:
            kept.append(_unseen(pod, passed))
        else:
            kept.append({**(_unseen(pod, passed) if passed > _GAP else pod), "end": now})
    for look in current.values():
        created = _created(look.pop("created"), now)
        name = f"{look['namespace']}/{look['pod']}"
        since = waited.get(name)
        look["begin"] = created if first else now
        look["waitedSeconds"] = now - since if since is not None else None if first else 0.0
        kept.append(_continued(look, look, passed))
    head |= {"end": now, "waiting": waiting}
    return Recording(head, kept)


def _created(created: str | None, now: float) -> float:
    return now if created is None else datetime.fromisoformat(created).timestamp()


def _held(usage: Usage) -> Iterator[tuple[tuple[str, str, str], dict[str, Any]]]:
    """Yield what each pod holds of a resource, devices of one kind together."""
    looks: dict[tuple[str, str, str], dict[str, Any]] = {}
    for node in usage.nodes:
        for gpu in node.gpus:
            for holding in gpu.holdings:
                if not holding.pod.name:
                    continue
                resource = holding.resource or CLAIMS
                key = holding.pod.namespace, holding.pod.name, resource
                look = _look(holding, gpu)
                if key in looks:
                    look = _together(looks[key], look)
                looks[key] = {
                    "namespace": holding.pod.namespace,
                    "pod": holding.pod.name,
                    "node": node.name,
                    "pool": node.pool,
                    "resource": resource,
                    "created": holding.pod.created,
                    **look,
                }
    yield from looks.items()


def _look(holding: Holding, gpu: UsedGpu) -> dict[str, Any]:
    words, _, count = holding.device.partition(" ×")
    kind: Kind = "whole" if words == "whole" else "mig" if words[:1].isdigit() else "share"
    if words.endswith(("replica", "share")):
        kind = "share"
    whole = kind == "whole"
    return {
        "kind": kind,
        "devices": int(count or 1),
        "givenMiB": gpu.total_mib if whole else holding.limit_mib,
        "givenCores": 100 if whole else holding.cores,
        "usedMiB": gpu.used_mib if whole and holding.used_mib is None else holding.used_mib,
        "usedCores": gpu.utilisation if whole else holding.utilisation,
    }


def _together(one_device: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return devices together: their number, and of each figure the largest, if all are known."""
    both = {**one_device, **other, "devices": one_device["devices"] + other["devices"]}
    for key in ("givenMiB", "givenCores", "usedMiB", "usedCores"):
        pair = one_device[key], other[key]
        both[key] = None if None in pair else max(pair)
    return both


def _continued(pod: Mapping[str, Any], look: Mapping[str, Any], passed: float) -> dict[str, Any]:
    """Return a pod with what a look shows of it."""
    used, cores = look["usedMiB"], look["usedCores"]
    result = {**pod, "end": None}
    result.pop("usedMiB", None)
    result.pop("usedCores", None)
    if used is not None:
        result["peakMiB"] = max(used, pod.get("peakMiB") or 0)
    if cores is not None:
        counts = list(pod.get("coresSeen") or [0] * (_PARTS + 1))
        counts[min(int(cores * _PARTS / 100), _PARTS)] += 1
        result["coresSeen"] = counts
        result["p50Cores"], result["p95Cores"] = _percentile(counts, 0.5), _percentile(counts, 0.95)
        result["peakCores"] = max(cores, pod.get("peakCores") or 0)
    return _unseen(result, passed) if passed > _GAP or used is None else result


def _unseen(pod: Mapping[str, Any], passed: float) -> dict[str, Any]:
    """Return a pod of which nothing is known for a time."""
    return {**pod, "unseenSeconds": (pod.get("unseenSeconds") or 0.0) + passed}


def _percentile(counts: list[int], part: float) -> float:
    """Return the upper edge of the part of the compute in which a percentile is."""
    passed, total = 0, sum(counts)
    for number, count in enumerate(counts):
        passed += count
        if passed >= part * total:
            return min(100.0, (number + 1) * 100 / _PARTS)
    return 100.0
