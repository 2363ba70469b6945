"""What ends a check before its time, and what must not be broken off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from conformance.bare.interruption import Interruption, TooLate
from conformance.skips import CheckSkipped


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    listener = Interruption()
    listener.listen()
    yield listener
    for number, handler in before.items():
        signal.signal(number, handler)


def test_ends_a_check_at_its_limit_or_that_of_the_run(interruption: Interruption) -> None:
    # The timer of whoever runs this test, such as pytest-timeout's.
    _, interval = signal.getitimer(signal.ITIMER_REAL)
    interruption.deadline = time.monotonic()
    with pytest.raises(TooLate, match="within 1 s"), interruption.limited(60):
        time.sleep(30)
    assert signal.getitimer(signal.ITIMER_REAL)[1] == interval


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ends_the_check_and_remembers_when_stopped(
    interruption: Interruption, number: signal.Signals
) -> None:
    with pytest.raises(CheckSkipped, match="the run was stopped"), interruption.limited(60):
        os.kill(os.getpid(), number)
    assert interruption.stopped == "the run was stopped"


def test_breaks_off_nothing_that_is_put_back(interruption: Interruption) -> None:
    with interruption.limited(60), interruption.deferred():
        os.kill(os.getpid(), signal.SIGTERM)
    assert interruption.stopped
