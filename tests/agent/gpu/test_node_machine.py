"""Whatever comes in whatever order: nothing held is touched, nothing is offered twice."""

from __future__ import annotations

from collections import Counter

import pytest

from divvy.agent.gpu import owner
from tests.agent.node_machine import Broken, walk
from tests.thoroughness import at_length


def test_keeps_its_promises_in_any_order() -> None:
    counts: Counter[str] = Counter()
    for seed in range(4):
        counts += walk(seed, at_length(750, 12_500))
    assert min(counts[name] for name in ("pods", "prepared", "kills", "settled")) > 3


def test_finds_a_fence_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner.SchedulerFence, "waits_for", lambda _self, _uuid: "")
    with pytest.raises(Broken, match="allocated|has it"):
        walk(0, 3000)
