"""A pool moves to claims and back, node by node, and no pod waits beside an idle GPU for long.

``python -m tests.agent.pool_walk`` plays any number of orders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from divvy.agent.gpu import reconciliation
from divvy.agent.gpu.transition import Facts
from tests.agent.node_machine import Broken
from tests.agent.pool_walk import walk_pool


def walk_pools(seeds: range) -> None:
    for seed in seeds:
        pool = walk_pool(seed)
        assert pool.counts["moves"] == 3
        assert not pool.waiting


def test_moves_and_serves_every_pod_meanwhile() -> None:
    walk_pools(range(12))


@pytest.mark.parametrize("first", range(12, 212, 50))
def test_moves_and_serves_every_pod_in_other_orders(first: int) -> None:
    walk_pools(range(first, first + 50))


def test_finds_a_gpu_that_moves_ahead_of_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def alone(by_uuid: Mapping[str, Facts], *_: Any) -> Mapping[str, Facts]:
        return by_uuid

    monkeypatch.setattr(reconciliation, "moving_together", alone)
    # With this order the last pod of a node stays long enough.
    with pytest.raises(Broken, match="beside an idle GPU"):
        walk_pool(4)
