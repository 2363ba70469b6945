"""The pods of a time: what each held, used and waited; and the recording that keeps them.

A recording is text, one JSON object a line: what it is, then a pod a line. What was not seen is
null and stays unknown; it is never zero.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import Any, Literal, NamedTuple, get_args

from pydantic_core import from_json

from divvy.errors import CommandError
from divvy.model.phrases import plural
from divvy.model.problems import printable

VERSION = 1
_WHAT = "divvyRecording"
Kind = Literal["whole", "mig", "share"]
_KINDS = get_args(Kind)
# Of a pod, what is a number that is not negative, or unknown.
_NUMBERS = (
    "begin",
    "end",
    "unseenSeconds",
    "givenMiB",
    "givenCores",
    "waitedSeconds",
    "peakMiB",
    "p95Cores",
    "peakCores",
)
# No pod has so many devices of one node.
_MAX_DEVICES = 1000
CLAIMS = "claims"
"""What stands for the resource of a device that a claim holds, as in the agents' metrics."""
# A pod that was out of sight for more of its life may have used more than was seen.
_UNSEEN = 0.1


class RecordedPod(NamedTuple):
    """A pod that held ``devices`` of one resource; times are Unix seconds, ``end`` None: it runs.

    ``given_mib`` and ``given_cores`` (per cent of a GPU) are what each device gave it, ``peak_mib``
    the most that it used of one, ``cores`` the 95th percentile of the GPU's time that it took,
    ``peak_cores`` the most. None is unknown.
    """

    namespace: str
    name: str
    node: str
    pool: str
    resource: str
    kind: Kind
    devices: int
    begin: float
    end: float | None
    given_mib: float | None = None
    given_cores: float | None = None
    peak_mib: float | None = None
    cores: float | None = None
    peak_cores: float | None = None
    waited: float | None = None

    @property
    def full_name(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Trace:
    """The pods of a cluster between two times (Unix seconds).

    ``gaps`` are times within them of which nothing is known; ``unread`` says what cannot be read of
    a recording: it may be pods of any pool.
    """

    cluster: str
    begin: float
    end: float
    pods: Sequence[RecordedPod]
    gaps: tuple[tuple[float, float], ...] = ()
    unread: str = ""

    @property
    def seconds(self) -> float:
        """Return for how long there is data."""
        (seconds,) = self.known_until([self.end])
        return seconds

    def known_until(self, moments: Iterable[float]) -> Iterator[float]:
        """Yield for how long there is data until each of some moments."""
        gaps = sorted(self.gaps)
        begins = [begin for begin, _ in gaps]
        unknown = list(accumulate((end - begin for begin, end in gaps), initial=0.0))
        begin, end = self.begin, self.end
        for moment in moments:
            until = begin if moment < begin else min(moment, end)
            known = until - begin
            if gaps and (passed := bisect_left(begins, until)):
                known = known - unknown[passed] + max(gaps[passed - 1][1] - until, 0.0)
            yield known


@dataclass(frozen=True)
class Recording:
    """A recording as it is written: ``heading`` and pods with all their fields, also unknown."""

    heading: Mapping[str, Any]
    pods: Iterable[Mapping[str, Any]]


def heading(
    cluster: str, begin: float, end: float, gaps: Iterable[tuple[float, float]] = ()
) -> dict[str, Any]:
    """Return the first line of a recording."""
    gap_lists = [list(gap) for gap in gaps]
    return {_WHAT: VERSION, "cluster": cluster, "begin": begin, "end": end, "gaps": gap_lists}


def recording_text(recording: Recording) -> str:
    """Return a recording as text."""
    lines = (recording.heading, *recording.pods)
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_recording(lines: Iterable[str], source: str) -> Recording:
    """Read a recording, its pods as they are taken; raises CommandError if it is none."""
    rest = iter(lines)
    try:
        first = json.loads(next(rest, ""))
        version, known = first[_WHAT], _known(first)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise CommandError(
            f"{source} is not a recording: `divvy top --record FILE` writes one"
        ) from None
    if not isinstance(version, int) or version > VERSION:
        raise CommandError(
            f"{source} is a recording of version {printable(str(version))}; this Divvy reads "
            f"{VERSION} and older ones"
        )
    return Recording({**first, **known}, _documents(rest))


def _known(first: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is read of the first line; raises ValueError, TypeError or LookupError."""
    begin, end = float(first["begin"]), float(first["end"])
    if not 0 <= begin <= end < inf:
        raise ValueError(first)
    gaps = [(float(gap[0]), float(gap[1])) for gap in first.get("gaps") or ()]
    gaps = [(max(opens, begin), min(closes, end)) for opens, closes in gaps]
    gaps = [(opens, closes) for opens, closes in gaps if opens < closes]
    cluster = printable(first.get("cluster") or "")
    return {"begin": begin, "end": end, "gaps": gaps, "cluster": cluster}


def _documents(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in filter(str.strip, lines):
        try:
            document = from_json(line)
        except ValueError:
            document = None
        yield document if isinstance(document, dict) else {}


def trace_of(recording: Recording, since: float | None = None) -> Trace:
    """Return the pods of a recording, of the last ``since`` seconds where it is given."""
    first = recording.heading
    begin, end = first["begin"], first["end"]
    begin = begin if since is None else max(begin, end - since)
    pods, unread = [], 0
    for document in recording.pods:
        try:
            pod = recorded_pod(document, end)
        except (KeyError, TypeError, ValueError):
            unread += 1
            continue
        if (pod.end is None or pod.end > begin) and pod.begin < end:
            pods.append(pod)
    gaps = tuple(
        (max(gap_begin, begin), gap_end) for gap_begin, gap_end in first["gaps"] if gap_end > begin
    )
    words = (
        f"{plural(unread, 'line')} of the recording cannot be read, and what their pods needed is "
        "not known: delete these lines to be advised on the others alone"
    )
    return Trace(first["cluster"], begin, end, pods, gaps, words if unread else "")


def recorded_pod(document: Mapping[str, Any], recorded_until: float) -> RecordedPod:
    """Read one pod of a recording; raises KeyError, TypeError or ValueError."""
    get = document.get
    kind, devices = document["kind"], document["devices"]
    begin, end, unseen, *figures = numbers = list(map(get, _NUMBERS))
    for value in numbers:
        if value is not None and not 0 <= value < inf:
            raise ValueError(value)
    if kind not in _KINDS or begin is None or not 1 <= int(devices) <= _MAX_DEVICES:
        raise ValueError(document)
    if end is not None and end < begin:
        raise ValueError(document)
    given_mib, given_cores, waited, peak_mib, cores, peak_cores = figures
    if (unseen or 0) > _UNSEEN * ((recorded_until if end is None else end) - begin):
        peak_mib = cores = peak_cores = None
    return RecordedPod(
        _name(document["namespace"]),
        printable(document["pod"]),
        _name(get("node") or ""),
        _name(get("pool") or ""),
        _name(document["resource"]),
        kind,
        int(devices),
        begin,
        end,
        given_mib,
        given_cores,
        peak_mib,
        cores,
        peak_cores,
        waited,
    )


@lru_cache(maxsize=10_000)
def _name(text: str) -> str:
    """Return a name that many pods have, once for all of them."""
    return printable(text)
