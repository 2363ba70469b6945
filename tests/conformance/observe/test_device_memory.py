"""A limit is compared exactly; what the driver takes of a card is not Divvy's number."""

from dataclasses import replace

import pytest

from conformance.observe.device_memory import memory_fits, share_sizes
from tests.conformance.promised_nodes import limited_share


@pytest.mark.parametrize(
    ("mib", "fits"), [(3840, True), (3839, True), (3841, True), (3540, False), (4140, False)]
)
def test_compares_a_limit_exactly(mib: int, fits: bool) -> None:
    assert memory_fits(limited_share(3840), mib) is fits


def test_derives_a_part_of_the_card_from_what_the_driver_reports() -> None:
    promise = limited_share(3840)
    node = replace(promise.node, labels={"nvidia.com/gpu.memory": "15109"})
    assert share_sizes(replace(promise, node=node)) == (3777, 3840)
