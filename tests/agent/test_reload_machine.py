"""Whatever the driver loses: each specification and each limit is of the device that it names."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.agent.node_machine import Broken
from tests.agent.reload_machine import walk


def _walks(seeds: range, steps: int) -> Counter[str]:
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += walk(seed, steps)
    return counts


def test_leads_nobody_to_another_gpu_in_any_order() -> None:
    counts = _walks(range(3), 500)
    names = ("pods", "prepared", "reloads", "plugs", "hostile refused", "settled")
    assert min(counts[name] for name in names) > 0


@pytest.mark.parametrize("seed", range(10, 14))
def test_leads_nobody_to_another_gpu_in_five_thousand_steps(seed: int) -> None:
    walk(seed, 5000)


@pytest.mark.parametrize(
    "function",
    [
        "claims.preparation.keep_described",  # as before: what a lost GPU had was passed over
        "inject.injection.keep_described",
    ],
)
def test_finds_a_specification_of_what_is_lost(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"divvy.agent.{function}", lambda *_: None)
    with pytest.raises(Broken, match="gives"):
        _walks(range(20, 30), 1000)
