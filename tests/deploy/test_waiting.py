"""Waits in one cluster, whose answers a test gives."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from divvy.engine.errors import StepFailed
from divvy.engine.kubernetes.api import ApiProblem
from divvy.engine.kubernetes.waiting import Waiting

from divvy.kube.kind import Kind

DEPLOYMENTS = Kind("apps/v1", "Deployment", "deployments")
SERVICES = Kind("v1", "Service", "services")


def service(uid: str, *, has_address: bool) -> dict[str, Any]:
    balancer = {"ingress": [{"ip": "192.0.2.1"}]} if has_address else {}
    return {
        "kind": "Service",
        "metadata": {"name": "s", "uid": uid},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": balancer},
    }


def deployment(**spec: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "d", "uid": "1", "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, **spec},
        "status": {"observedGeneration": 1},
    }


class Answers:
    """An API server that has one object and no others; a list takes its time, or is refused."""

    def __init__(self, present: dict[str, Any], seconds: float = 0.0, refused: str = "") -> None:
        self._present = present
        self._seconds = seconds
        self._refused = refused

    def get(self, *_: object) -> dict[str, Any]:
        return self._present

    def kind(self, api_version: str, kind: str) -> Kind:
        return Kind(api_version, kind, f"{kind.lower()}s")

    def list(self, kind: Kind, *_: object, **__: str) -> list[dict[str, Any]]:
        time.sleep(self._seconds)
        if kind.kind == self._refused:
            raise ApiProblem(f"{kind.plural} is forbidden", 403)
        return []


def waiting_for(answers: Answers) -> Waiting:
    connection: Any = SimpleNamespace(api=answers)
    return Waiting(connection, lambda _urn, _text: None)


def test_takes_another_object_of_that_name_for_a_deletion() -> None:
    awaited, other = service("1", has_address=False), service("2", has_address=True)
    waiting = waiting_for(Answers(other))
    live, reason = waiting.until_ready("urn", SERVICES, "n", awaited, patience=5)
    assert reason == "the object was deleted while the engine waited for it"
    assert live == awaited


def test_waits_for_the_end_of_the_object_alone_that_it_deletes() -> None:
    """A controller may make another one of that name at once."""
    gone = service("1", has_address=True)
    waiting_for(Answers(service("2", has_address=True))).until_gone("urn", SERVICES, "n", gone, 0)
    with pytest.raises(StepFailed, match="s is not gone after 0 s: being deleted"):
        waiting_for(Answers(gone)).until_gone("urn", SERVICES, "n", gone, 0)


def test_says_what_is_missing_also_to_users_who_may_not_read_events() -> None:
    waiting = waiting_for(Answers(deployment(), refused="Event"))
    _, reason = waiting.until_ready("urn", DEPLOYMENTS, "n", deployment(), patience=0)
    assert reason == "not ready: 0 of 1 pods are updated after 0 s"


def test_looks_less_often_where_a_look_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    waiting = waiting_for(Answers(deployment(), seconds=0.4))

    def pause(seconds: float) -> bool:
        pauses.append(seconds)
        return len(pauses) == 2

    monkeypatch.setattr(waiting, "_cancelled", SimpleNamespace(wait=pause))
    waiting.until_ready("urn", DEPLOYMENTS, "n", deployment(), patience=60)
    assert len(pauses) == 2
    assert min(pauses) >= 0.4
