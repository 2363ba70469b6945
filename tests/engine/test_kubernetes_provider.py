"""The Kubernetes provider without a cluster."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from divvy.engine.kubernetes import connection as module
from divvy.engine.kubernetes.connection import Connection
from divvy.engine.kubernetes.provider import KubernetesProvider


def test_resources_at_the_same_time_share_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class SlowApi:
        def __init__(self, *place: Any) -> None:
            time.sleep(0.05)
            made.append(place)

    monkeypatch.setattr(module, "Api", SlowApi)
    connection = Connection({"context": "c"}, {})
    with ThreadPoolExecutor(8) as workers:
        found = set(workers.map(lambda _: connection.api, range(8)))
    assert (len(found), made) == (1, [(None, "c")])


def test_a_field_manager_is_never_longer_than_the_api_takes() -> None:
    provider = KubernetesProvider({}, "m" * 200, lambda _urn, _text: None, {})
    inputs = {"metadata": {"name": "a", "namespace": "n"}}
    managers = {provider.begin(inputs)[1]["__fieldManager"] for _ in range(2)}
    assert len(managers) == 2
    assert {len(manager) for manager in managers} == {128}
