"""What looks of `divvy top` become in a recording."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.advise.trace import RecordedPod, Recording, trace_of
from divvy.errors import CommandError
from divvy.live.recorder import Recorder, with_look
from divvy.live.usage import Holding, Usage, UsedGpu, UsedNode, UsingPod

CREATED = "2026-01-01T11:00:00Z"


def holding(name: str, used: int | None = 3000, **more: object) -> Holding:
    values = {"device": "whole", "resource": "nvidia.com/gpu", "container": "main"}
    pod = UsingPod("team", name, created=CREATED)
    return Holding(pod=pod, used_mib=used, **{**values, **more})  # type: ignore[arg-type]


def look(
    minute: float, *holdings: Holding, util: int | None = 10, waiting: str = "", unknown: str = ""
) -> Usage:
    """Return a look at one node, each device on a GPU of its own."""
    gpus = tuple(
        UsedGpu(number, f"GPU-{number}", total_mib=40960, utilisation=util, holdings=(held,))
        for number, held in enumerate(holdings)
    )
    seconds = int(minute * 60)
    read = f"2026-01-01T{12 + seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
    pods = tuple(UsingPod("team", name, created=read) for name in waiting.split())
    node = UsedNode("n", pool="a100", gpus=gpus, unknown=unknown)
    return Usage("prod", read, (node,), waiting=pods)


def recorded(*looks: Usage) -> Recording:
    recording: Recording | None = None
    for usage in looks:
        recording = with_look(recording, usage)
    assert recording is not None
    return recording


def pods_of(*looks: Usage) -> dict[str, RecordedPod]:
    return {pod.name: pod for pod in trace_of(recorded(*looks)).pods}


def test_keeps_the_most_that_a_pod_used_and_how_its_use_is_spread() -> None:
    looks = [look(minute, holding("a", 1000 + minute), util=10) for minute in range(19)]
    pod = pods_of(*looks, look(19, holding("a", 500), util=93))["a"]
    assert (pod.peak_mib, pod.given_mib, pod.given_cores) == (1018, 40960, 100)
    # Nineteen of twenty looks saw 10 to 15 %.
    assert (pod.cores, pod.peak_cores) == (15, 93)
    assert pod.end is None


def test_a_pod_begins_when_it_gets_a_device_and_ends_when_it_is_gone() -> None:
    first = look(0, holding("old"))
    pods = pods_of(first, look(1, holding("old"), holding("new")), look(2, holding("new")), look(3))
    begin = pods["old"].end
    assert begin is not None
    assert pods["old"].begin == begin - 2 * 60 - 3600, "it began before the recording"
    assert (pods["new"].begin, pods["new"].end) == (begin - 60, begin + 60)
    assert (pods["old"].waited, pods["new"].waited) == (None, 0)


def test_counts_how_long_a_pod_waited() -> None:
    waiting = (look(0), look(1, waiting="a"), look(2, waiting="a"))
    looks = (*waiting, look(3, holding("a")), look(4, holding("a")))
    # Its age is that of its object in the API, here of the last look at which it waited.
    assert pods_of(*looks)["a"].waited == 60


def test_an_agent_that_is_silent_ends_no_pod() -> None:
    begin = (look(0, holding("a")), look(1, unknown="it does not answer"))
    assert pods_of(*begin)["a"].end is None
    looks = (*begin, *(look(minute, unknown="…") for minute in range(2, 9)), look(9, holding("a")))
    pod = pods_of(*looks)["a"]
    assert pod.end is None
    (document,) = recorded(*looks).pods
    assert document["unseenSeconds"] == 8 * 60


def test_a_time_without_looks_is_a_gap() -> None:
    looks = (look(0, holding("a"), holding("b")), look(60, holding("a")))
    trace = trace_of(recorded(*looks))
    assert trace.seconds == 0
    pods = {pod.name: pod for pod in trace.pods}
    # It may have run until somebody looked again, and used anything.
    assert pods["b"].end == trace.end
    assert (pods["a"].peak_mib, pods["b"].peak_mib) == (None, None)


@pytest.mark.parametrize(
    ("device", "kind", "devices"),
    [
        ("whole", "whole", 1),
        ("1g.5gb", "mig", 1),
        ("1g.5gb replica", "share", 1),
        ("replica ×2", "share", 2),
        ("share", "share", 1),
    ],
)
def test_knows_each_kind_of_device(device: str, kind: str, devices: int) -> None:
    pod = pods_of(look(0, holding("a", device=device, limit_mib=4864)), look(1))["a"]
    assert (pod.kind, pod.devices) == (kind, devices)
    assert pod.given_mib == (40960 if kind == "whole" else 4864)
    assert (pod.cores is None) == (kind != "whole"), "a GPU's utilisation is not one pod's"


def test_devices_of_one_pod_are_together_if_all_are_known() -> None:
    pod = pods_of(look(0, holding("a", 1000), holding("a", 2000)), look(1))["a"]
    assert (pod.devices, pod.peak_mib) == (2, 2000)
    replicas = (holding("a", None, device="replica"), holding("a", 2000, device="replica"))
    assert pods_of(look(0, *replicas), look(1))["a"].peak_mib is None


def test_devices_that_claims_hold_have_no_resource() -> None:
    pod = pods_of(look(0, holding("a", resource="", claim="c", device="share", cores=30)))["a"]
    assert (pod.resource, pod.given_cores) == ("claims", 30)


def test_continues_a_file_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    path = tmp_path / "week.jsonl"
    Recorder(path).add(look(0, holding("a")))
    lines = path.read_text().splitlines()
    head, pod = map(json.loads, lines)
    written = [{**head, "colour": "red"}, {**pod, "mood": "good"}]
    path.write_text("".join(json.dumps(line) + "\n" for line in written))
    Recorder(path).add(look(1))
    head, pod = map(json.loads, path.read_text().splitlines())
    assert (head["colour"], pod["mood"]) == ("red", "good")
    assert pod["end"] == head["end"]


def test_writes_a_live_view_once_a_minute_and_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "week.jsonl"
    recorder = Recorder(path)
    recorder.add(look(0))
    first = path.read_text()
    recorder.add(look(1, holding("a")))
    assert path.read_text() == first
    recorder.write()
    assert "team" in path.read_text()


def test_says_what_is_wrong_with_a_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("x")
    with pytest.raises(CommandError, match="is not a recording"):
        Recorder(tmp_path / "x")
    with pytest.raises(CommandError, match="cannot read"):
        Recorder(tmp_path)
    recorder = Recorder(tmp_path / "no" / "x")
    with pytest.raises(CommandError, match="cannot write"):
        recorder.add(replace(look(0)))
