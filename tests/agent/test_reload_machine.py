"""Whatever the driver loses: each specification and each limit is of the device that it names."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.agent.node_machine import Broken
from tests.agent.reload_machine import reloaded_node, walk


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


@pytest.mark.parametrize("content", [None, b"", b"[", b'{"devices": []}'])
def test_writes_what_somebody_damages_again(content: bytes | None) -> None:
    """A claim's specification was written again only when its GPU was another."""
    with reloaded_node(0) as node:
        node.profile = "by-size"
        node.settle()
        for _ in range(20):
            node.allocate()
            node.prepare()
        specifications = list(node.settings.cdi_folder.glob("*.json"))
        assert any("claim" in path.name for path in specifications)
        before = [path.read_bytes() for path in specifications]
        node.is_stale = True  # until the agent has looked
        for path in specifications:
            path.unlink()
            if content is not None:
                path.write_bytes(content)
        node.look()
        assert [path.read_bytes() for path in specifications] == before
