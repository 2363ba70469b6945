"""How soon a kubelet tries again, by what it says of itself."""

import pytest

from conformance.observe.kubelet_settings import syncs_soon


@pytest.mark.parametrize(
    ("period", "soon"), [("10s", True), ("2s", True), ("1m0s", False), ("10.5s", False)]
)
def test_calls_ten_seconds_soon(period: str, soon: bool) -> None:
    expected, seen = syncs_soon({"syncFrequency": period})
    assert (seen == expected) == soon
    assert soon or period in seen
