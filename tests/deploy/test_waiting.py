"""Waits in one cluster, whose answers a test gives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import pytest

from divvy.deploy.changes import ObjectName
from divvy.deploy.waiting import NotReady, Waiting
from divvy.kube.client import Client
from divvy.kube.errors import ApiError
from divvy.kube.objects import Page

NAME = ObjectName("Deployment", "n", "d", "apps/v1")


def deployment(**status: Any) -> dict[str, Any]:
    return {
        "kind": "Deployment",
        "metadata": {"name": "d", "uid": "1", "generation": 1},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}},
        "status": {"observedGeneration": 1, **status},
    }


class Answers:
    """An API server that has one object, or none; a list takes its time, or is refused."""

    def __init__(
        self, present: dict[str, Any] | None, seconds: float = 0.0, refused: str = ""
    ) -> None:
        self.present = present
        self.looks = 0
        self._seconds = seconds
        self._refused = refused

    def find(self, _path: str) -> dict[str, Any] | None:
        self.looks += 1
        return self.present

    def pages(self, path: str, _query: Any) -> Iterator[dict[str, Any]]:
        time.sleep(self._seconds)
        if self._refused and path.endswith(self._refused):
            raise ApiError(403, f"{self._refused} is forbidden")
        yield Page([], "", "")


def wait(answers: Answers, patience: float) -> list[str]:
    reported: list[str] = []
    Waiting(cast(Client, answers), reported.append).until_ready(NAME, patience)
    return reported


def test_returns_at_once_for_a_workload_that_is_ready() -> None:
    ready = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), 1)
    assert wait(Answers(deployment(**ready)), 5) == []


def test_gives_up_a_workload_that_was_deleted() -> None:
    with pytest.raises(NotReady, match="Deployment n/d was deleted while its pods were waited"):
        wait(Answers(None), 5)


def test_says_what_is_missing_also_to_users_who_may_not_read_events() -> None:
    with pytest.raises(NotReady) as missing:
        wait(Answers(deployment(), refused="events"), 0)
    assert str(missing.value) == "Deployment n/d is not ready: 0 of 1 pods are updated after 0 s"


def test_looks_less_often_where_a_look_takes_long() -> None:
    answers = Answers(deployment(), seconds=0.4)
    with pytest.raises(NotReady):
        wait(answers, 2.0)
    # Each look and each pause take 0.4 s.
    assert answers.looks <= 4
