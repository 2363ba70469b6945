"""Pods that are kept up by a watch of an API server that may be odd."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from conformance.cluster.pod_watch import PodWatch
from tests.conformance.fake_api import FakeApi


class EndingApi(FakeApi):
    """Ends every watch at once, as some proxies do."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    def find_at(self, *_: Any, **__: Any) -> tuple[list[Any], str]:
        self.lists += 1
        return [{"metadata": {"name": f"pod-{self.lists}"}}], "1"

    def watch(self, *_: Any) -> Iterator[tuple[str, Any]]:
        return iter(())


def test_lists_once_a_second_when_watches_end_at_once() -> None:
    api = EndingApi()
    pods: Any = PodWatch(api, "n")  # type: ignore[arg-type]
    time.sleep(1.5)
    pods.end()
    assert api.lists == 2
    assert pods.pod("pod-2")
    assert not pods.pod("pod-1")
