"""Which GPU an index means, when GPUs are lost and replaced."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.gpu.assignment import assign
from divvy.agent.gpu.hardware import Gpu
from tests.agent.devices import gpu, snapshot

BOOT, EARLIER = "boot-2", "boot-1"


def lost(index: int, uuid: str) -> Gpu:
    """Return a GPU that was at an index's PCI address."""
    return replace(gpu(index), uuid=uuid, lost=True)


def test_gives_new_gpus_the_index_that_the_driver_shows() -> None:
    assert assign({}, snapshot(gpu(0), gpu(1)), {}, BOOT, 2).uuids == {0: "GPU-0", 1: "GPU-1"}


def test_replaces_a_lost_gpu_by_the_one_at_its_address() -> None:
    result = assign({0: "old"}, snapshot(gpu(0), lost(0, "old")), {}, BOOT, 1)
    assert (result.uuids, result.replaced) == ({0: "GPU-0"}, {"old"})


def test_keeps_a_lost_gpu_within_a_boot() -> None:
    seen = {"GPU-1": BOOT}
    result = assign({0: "GPU-0", 1: "GPU-1"}, snapshot(gpu(0), lost(1, "GPU-1")), seen, BOOT, 2)
    assert (result.uuids, result.replaced) == ({0: "GPU-0", 1: "GPU-1"}, frozenset())


def test_replaces_by_a_gpu_in_another_slot_after_a_restart_only() -> None:
    gpus = snapshot(gpu(1), lost(0, "old"))
    assert assign({0: "old"}, gpus, {"old": BOOT}, BOOT, 1).replaced == frozenset()
    result = assign({0: "old"}, gpus, {"old": EARLIER}, BOOT, 1)
    assert (result.uuids, result.replaced) == ({0: "GPU-1"}, {"old"})


def test_forgets_a_lost_gpu_whose_successor_has_its_index_already() -> None:
    """An agent saved both and ended before it forgot the first: it would be lost forever."""
    gpus = snapshot(gpu(0), gpu(1), lost(1, "old"))
    result = assign({0: "GPU-0", 1: "GPU-1"}, gpus, {"old": BOOT}, BOOT, 2)
    assert (result.uuids, result.replaced) == ({0: "GPU-0", 1: "GPU-1"}, {"old"})
