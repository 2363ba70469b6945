"""The Kubernetes provider without a cluster."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from divvy.engine.kubernetes import connection as module
from divvy.engine.kubernetes.connection import Connection


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
