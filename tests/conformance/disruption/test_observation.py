"""How long a disturbed node is waited for."""

from typing import Any

import pytest

from conformance.disruption.observation import reconfigured_within
from tests.conformance.promised_nodes import live, promised


@pytest.mark.parametrize(("gpus", "seconds"), [(1, 90), (2, 90), (8, 200)])
def test_gives_a_node_with_many_gpus_more_time(gpus: int, seconds: float) -> None:
    hardware = {"model": "A100-SXM4-40GB", "gpus": gpus, "count": 1}
    cluster: dict[str, Any] = {
        "profiles": {"whole": {}},
        "pools": {"p": {"hardware": hardware, "profile": "whole"}},
    }
    (node,) = promised(cluster, live("n1", {"nvidia.com/gpu": str(gpus)}))
    assert reconfigured_within(node) == seconds
