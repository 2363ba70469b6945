"""Recordings: what is read of them, and what is not."""

import json

import pytest

from divvy.advise.trace import Recording, heading, read_recording, recording_text, trace_of
from divvy.errors import CommandError

POD = {
    "namespace": "team",
    "pod": "a",
    "node": "n",
    "pool": "a100",
    "resource": "nvidia.com/gpu",
    "kind": "whole",
    "devices": 1,
    "begin": 100,
    "end": 200,
    "givenMiB": 40960,
    "givenCores": 100,
    "peakMiB": 3000,
    "p95Cores": 10,
    "peakCores": 90,
    "waitedSeconds": 5,
    "unseenSeconds": 0,
}


def text(*pods: object, **more: object) -> str:
    head = {**heading("prod", 0, 1000, [(300, 400)]), **more}
    return "".join(json.dumps(line) + "\n" for line in (head, *pods))


def read(written: str, since: float | None = None):  # type: ignore[no-untyped-def]
    return trace_of(read_recording(written.splitlines(), "FILE"), since)


def test_reads_what_it_writes_and_keeps_what_it_does_not_know() -> None:
    written = text({**POD, "temperature": 40}, colour="red")
    recording = read_recording(written.splitlines(), "FILE")
    assert recording.heading["colour"] == "red"
    again = recording_text(Recording(recording.heading, list(recording.pods)))
    assert list(map(json.loads, again.splitlines())) == list(map(json.loads, written.splitlines()))
    (pod,) = read(written).pods
    assert (pod.full_name, pod.peak_mib, pod.cores, pod.waited) == ("team/a", 3000, 10, 5)


def test_what_is_missing_is_unknown_and_never_zero() -> None:
    least = {key: POD[key] for key in ("namespace", "pod", "resource", "kind", "devices", "begin")}
    (pod,) = read(text(least)).pods
    unknown = pod.end, pod.given_mib, pod.given_cores, pod.peak_mib, pod.cores, pod.waited
    assert unknown == (None,) * 6


def test_a_pod_that_was_out_of_sight_may_have_used_more() -> None:
    (seen,) = read(text({**POD, "unseenSeconds": 10})).pods
    (unseen,) = read(text({**POD, "unseenSeconds": 11})).pods
    assert (seen.peak_mib, unseen.peak_mib) == (3000, None)
    assert unseen.given_mib == 40960
    # One that runs has lived until the end of the recording.
    (running,) = read(text({**POD, "end": None, "unseenSeconds": 90})).pods
    assert running.peak_mib == 3000


def test_nothing_is_known_of_a_gap_that_began_before_the_recording() -> None:
    lines = text(POD).splitlines()
    first = {**json.loads(lines[0]), "begin": 100, "end": 1000, "gaps": [[0, 400], [900, 2000]]}
    assert read("\n".join((json.dumps(first), *lines[1:]))).seconds == 500


def test_looks_only_at_the_last_part_of_a_recording() -> None:
    pods = [POD, {**POD, "pod": "late", "begin": 900, "end": None}]
    trace = read(text(*pods), since=150)
    assert [pod.name for pod in trace.pods] == ["late"]
    assert (trace.begin, trace.seconds, trace.gaps) == (850, 150, ())
    assert read(text(*pods)).seconds == 900


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "half"},
        {"devices": 0},
        {"devices": 10**9},
        {"begin": float("nan")},
        {"devices": "two"},
        {"begin": None},
        {"end": 50},
        {"peakMiB": -1},
        {"peakMiB": "much"},
        {"peakMiB": float("inf")},
        {"begin": {}},
    ],
)
def test_leaves_out_lines_that_are_no_pods_and_counts_them(odd: dict[str, object]) -> None:
    trace = read(text(POD, {**POD, **odd}) + "[1]\n{\n\n")
    assert [pod.name for pod in trace.pods] == ["a"]
    assert trace.unread.startswith("3 lines of the recording cannot be read")


@pytest.mark.parametrize("bounds", [(5, 4), (0, float("inf")), (float("nan"), 4), (-1, 4)])
def test_refuses_a_time_that_is_none(bounds: tuple[float, float]) -> None:
    with pytest.raises(CommandError, match="FILE is not a recording"):
        read(text(begin=bounds[0], end=bounds[1]))


def test_leaves_out_gaps_that_are_none() -> None:
    trace = read(text(gaps=[[5, 4], [2000, 3000], [10, 20], [-5, 5]]))
    assert sorted(trace.gaps) == [(0, 5), (10, 20)]


@pytest.mark.parametrize("written", ["", "[]", "{}", "x", '{"divvyRecording": 1}', "[" * 100_000])
def test_refuses_what_is_no_recording(written: str) -> None:
    with pytest.raises(CommandError, match="FILE is not a recording: `divvy top --record FILE`"):
        read(written)


@pytest.mark.parametrize("version", [2, "1", None])
def test_refuses_a_recording_of_another_version(version: object) -> None:
    with pytest.raises(CommandError, match="is a recording of version"):
        read(text(divvyRecording=version))


def test_shows_no_control_characters_of_a_name() -> None:
    (pod,) = read(text({**POD, "pod": "a\x1b[31m"})).pods
    assert pod.name.isprintable()
