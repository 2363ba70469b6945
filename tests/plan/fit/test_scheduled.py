"""Fit says of random pods what the stock scheduler does; a long run is in scheduled.py."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.plan.fit.scheduled import Case, scheduling

pytestmark = pytest.mark.lab
SEEDS = (3, 11, 12, 17, 23, 28)


def test_fits_what_the_scheduler_schedules() -> None:
    seen: Counter[str] = Counter()
    with scheduling() as server:
        for seed in SEEDS:
            seen += Case(server, seed).run()
    # Seeds that show one side alone would prove nothing.
    assert seen["fits"] > 10
    assert seen["does not fit"] > 10
    assert seen["also all from the plan"] > 10
