"""What `divvy up` shows of the nodes, and for how long it waits for them."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from divvy.cli import topology
from divvy.cli.errors import CommandError
from divvy.cli.topology import Advertised
from divvy.engine.state.resource import ResourceState
from divvy.engine.watcher import StepReport, Summary
from divvy.model import parse_cluster
from divvy.model.canonical import canonical_json
from divvy.plan import LiveNode

VALUE = {
    "profiles": {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}},
    "pools": {
        "known": {
            "select": {"pool": "known"},
            "hardware": {"model": "T4", "gpus": 2, "count": 1},
            "profile": "whole",
        },
        "unknown": {"select": {"pool": "unknown"}, "profile": "whole"},
    },
}
CLUSTER = parse_cluster(VALUE)
WHOLE = {"nvidia.com/gpu": 2}


def resource(kind: str, component: str, **inputs: Any) -> ResourceState:
    metadata = {"labels": {"app.kubernetes.io/component": component}}
    return ResourceState(kind, f"kubernetes:{kind}", True, inputs={"metadata": metadata, **inputs})


def configuration() -> ResourceState:
    data = {"cluster.json": canonical_json(VALUE)}
    return resource("core/v1:ConfigMap", "configuration", data=data)


def test_shows_the_whole_plan_when_the_first_agents_start() -> None:
    """A run that failed before them has left the ConfigMap, and the nodes offer nothing."""
    kept = StepReport("same", "config", configuration(), configuration())
    agents = StepReport("create", "agents", None, resource("apps/v1:DaemonSet", "agent"))
    runtime = StepReport("create", "runtime", None, resource("apps/v1:DaemonSet", "node-runtime"))
    assert topology.topology(Summary([kept]), "s") is None
    assert topology.topology(Summary([kept, runtime]), "s") is None
    view = topology.topology(Summary([kept, agents]), "s")
    console = Console(width=80)
    with console.capture() as shown:
        console.print(view)
    assert shown.get().startswith("s: 2 pools")


class Waited(Exception):
    pass


def node(pool: str, allocatable: dict[str, int], state: str = "Ready", **labels: str) -> LiveNode:
    return LiveNode(pool, {"pool": pool, **labels}, allocatable, state, "", gpus=2)


@pytest.fixture(name="advertised")
def _advertised(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give what `up` says of nodes; raises Waited if it would look once more."""
    summary: Any = SimpleNamespace(changes=1)
    monkeypatch.setattr(topology, "configured", lambda _: (None, CLUSTER))
    monkeypatch.setattr(topology, "_connection", lambda _: (None, None))

    def sleep(_seconds: float) -> None:
        raise Waited

    monkeypatch.setattr("time.sleep", sleep)

    def say(*nodes: LiveNode) -> Advertised | None:
        monkeypatch.setattr(topology, "live_nodes", lambda *_: nodes)
        return topology.wait_advertised(summary, "s")

    return say


def test_names_nodes_missing_from_the_file_without_waiting_for_them(advertised: Any) -> None:
    result = advertised(node("known", WHOLE), node("unknown", WHOLE))
    assert "the stack file does not say which GPUs it has" in result.words
    assert not result.differs
    shared = {"nvidia.com/gpu.shared": 8}
    result = advertised(node("known", shared, **{"divvy.gpu/profile": "slices"}))
    assert "bypasses the file: label divvy.gpu/profile=slices" in result.words
    assert not result.differs


@pytest.mark.parametrize(
    "late",
    [
        node("known", {}),
        node("known", WHOLE, "Changing"),
        node("unknown", WHOLE, "Changing"),
        node("known", {"nvidia.com/gpu": 2}, "Changing", **{"divvy.gpu/profile": "slices"}),
    ],
)
def test_waits_for_an_agent_at_work(advertised: Any, late: LiveNode) -> None:
    with pytest.raises(Waited):
        advertised(node("unknown", WHOLE), late)


def test_stops_waiting_for_an_agent_that_waits_for_pods(advertised: Any) -> None:
    result = advertised(node("known", {}, "Waiting"))
    assert "Waiting" in result.words
    assert result.differs


def test_reports_a_node_that_is_not_ready_without_waiting(advertised: Any) -> None:
    result = advertised(replace(node("known", WHOLE), unavailable="NotReady since 03:00: gone"))
    assert "NotReady since 03:00: gone" in result.words
    assert result.differs


@pytest.mark.usefixtures("advertised")
def test_retries_a_failed_look_without_failing_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: object) -> None:
        raise CommandError("the cluster cannot be reached: the read operation timed out")

    def try_again() -> Advertised | None:
        monkeypatch.setattr(topology, "live_nodes", busy)
        return topology.wait_advertised(SimpleNamespace(changes=1), "s")  # type: ignore[arg-type]

    with pytest.raises(Waited):
        try_again()
    clock = iter([0.0, 0.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    assert try_again() == Advertised(
        "the nodes cannot be compared with the plan yet: the cluster cannot be reached: the read "
        "operation timed out",
        differs=True,
    )


def test_announces_a_long_wait_once(
    advertised: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 0.0, 0.1, 1.0, 4.0, 5.0, 6.0, 7.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    assert advertised(node("known", {})).differs
    assert capsys.readouterr().err == "waiting up to 60 s for nodes that differ from the plan\n"


def test_slows_its_looks_at_many_nodes(advertised: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, pauses = iter([0.0, 0.0, 0.01, 10.0, 14.0, 14.0, 15.0]), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise Waited

    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", sleep)
    with pytest.raises(Waited):
        advertised(node("known", {}))
    assert pauses == [0.25, 8.0]
