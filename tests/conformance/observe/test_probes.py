"""What is done for many nodes at a time, also where one is away for a while or the run ends."""

import threading
import time
from concurrent.futures import Future

import pytest

from conformance.observe.probes import Prefetched


def test_looks_later_at_a_node_that_was_away() -> None:
    looked: list[str] = []
    looks: Prefetched[str, str] = Prefetched(
        ["n1", "n2"], lambda name: looked.append(name) or name, 2
    )
    assert looks["n1"] == "n1"
    assert looks["n3"] == looks["n3"] == "n3"
    assert sorted(looked) == ["n1", "n2", "n3"]


def test_waits_for_no_other_case_when_the_run_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    began: list[int] = []

    def work(number: int) -> None:
        began.append(number)
        released.wait(60)

    def stopped(_: Future[None]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("conformance.observe.probes.wait", stopped)
    since = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        Prefetched(range(10), work, 2)[0]
    assert time.monotonic() - since < 30
    released.set()
    time.sleep(0.2)
    assert len(began) <= 2
