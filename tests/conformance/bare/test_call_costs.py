"""How many calls a round has that measures what the limiter adds."""

import pytest

from conformance.bare.call_costs import calls_within


@pytest.mark.parametrize("nanoseconds", [150.0, 4_000.0, 45_000.0, 2_000_000.0])
def test_lasts_as_long_as_planned_on_any_driver_speed(nanoseconds: float) -> None:
    assert calls_within(1.5, nanoseconds) * nanoseconds / 1e9 == pytest.approx(1.5, rel=0.01)


def test_makes_a_call_once_that_takes_longer_than_a_round() -> None:
    assert calls_within(1.5, 4e9) == 1
