"""The loop of the controller: one pod's trouble is not another's, and no pod goes in vain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from divvy.kube.errors import ApiError, Unreachable
from divvy.plan.claim_requests import Request
from divvy.plan.preemption import Observed, PodName
from divvy.preemption.client import Api
from divvy.preemption.controller import Controller
from tests.plan.test_preemption import WHOLE, State, claim_of, waiting_pod


class Cluster(Api):
    """A cluster whose API answers as a test wants."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.evicted: list[str] = []
        self.events: list[str] = []
        self.refused: set[str] = set()
        self.events_problem: Exception | None = None
        self.on_observed: Callable[[], None] = lambda: None

    async def waiting(self) -> list[dict[str, Any]]:
        return [pod for pod in self.state.pods if "nodeName" not in pod["spec"]]

    async def observed(self) -> Observed:
        state = self.state
        observation = Observed(
            state.nodes, list(state.pods), state.claims, state.slices, state.budgets
        )
        self.on_observed()
        return observation

    async def cluster(self) -> Any:
        return self.state.cluster

    async def evict(self, pod: PodName, *, dry_run: bool) -> None:
        if pod.name in self.refused:
            raise ApiError(500, "refused")
        if not dry_run:
            self.evicted.append(pod.name)
            self.state.end(pod.name)

    async def event(self, pod: PodName, kind: str, reason: str, message: str) -> None:
        if self.events_problem is not None:
            raise self.events_problem
        self.events.append(f"{pod.name} {reason}")


def wait(state: State, name: str, priority: int, request: Request = WHOLE) -> None:
    state.pods.append(waiting_pod(name, priority))
    state.claims.append(claim_of(name, request))


def look(cluster: Cluster, times: int = 2) -> None:
    """Let the controller look, for which every pod that waits is new at the first time."""

    async def looks() -> None:
        controller = Controller(cluster, look_seconds=0.0)
        for _ in range(times):
            await controller.look()

    asyncio.run(looks())


@pytest.fixture
def two() -> Cluster:
    """Give a cluster of two nodes, each for one of the two pods that wait."""
    state = State(nodes=2)
    state.run("held", WHOLE)
    state.run("other", WHOLE)
    for number, name in enumerate(state.names):
        wait(state, f"waits-{number}", 200 - number)
        state.pods[-1]["spec"]["nodeSelector"] = {"name": name}
        state.nodes[number]["metadata"]["labels"]["name"] = name
    return Cluster(state)


def test_evicts_for_other_pods_when_one_eviction_is_refused(two: Cluster) -> None:
    two.refused = {"held"}
    look(two)
    assert two.evicted == ["other"]
    assert two.events == ["other Preempted", "waits-1 Preempting"]


def test_evicts_when_an_event_is_refused(two: Cluster) -> None:
    """A namespace that is being deleted takes none."""
    two.events_problem = ApiError(403, "the namespace is being terminated")
    look(two)
    assert two.evicted == ["held", "other"]


def test_ends_its_look_when_the_server_is_silent(two: Cluster) -> None:
    two.events_problem = Unreachable("no answer")
    with pytest.raises(Unreachable):
        look(two)
    assert two.evicted == ["held"]


def test_preempts_no_pod_for_a_pod_that_has_gone_meanwhile(two: Cluster) -> None:
    def gone() -> None:
        two.state.pods.remove(two.state.pod("waits-0"))

    two.on_observed = gone
    look(two)
    assert two.evicted == ["other"]


def test_preempts_no_pod_for_a_pod_scheduled_meanwhile(two: Cluster) -> None:
    def scheduled() -> None:
        pod = two.state.pod("waits-0")
        two.state.pods[two.state.pods.index(pod)] = {
            **pod,
            "spec": {**pod["spec"], "nodeName": "node-0"},
        }

    two.on_observed = scheduled
    look(two)
    assert two.evicted == ["other"]
