"""NUMA nodes of devices: what the kubelet was told beside what the bus says."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.observe.numa import PLACES, Numa, hints_are_right
from conformance.skips import NotApplicable
from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients.driver_root import DriverRoot

RIGHT = "devices at the NUMA nodes of their GPUs: 3"
PLACED = {"GPU-a": 0, "MIG-b": 0, "GPU-c": 1}


def test_reads_the_bus_by_the_gpus_address(
    driver: DriverRoot, run_script: Callable[[str], Any]
) -> None:
    driver.install("A100-SXM4-40GB", 4)
    numa = run_script(PLACES)
    assert numa["devices"] == {gpu_uuid("test", index): index // 2 for index in range(4)}
    assert numa["nodes"] >= 1


def test_places_replicas_and_mig_devices_with_their_gpu() -> None:
    hints = {"GPU-a::0": (0,), "MIG-b": (0,), "GPU-c": (1,), "rdma-0": (7,)}
    assert hints_are_right(Numa(hints, PLACED, 2), 3) == (RIGHT, RIGHT)


@pytest.mark.parametrize("hint", [(0,), (), (0, 1)])
def test_names_a_misleading_numa_hint(hint: tuple[int, ...]) -> None:
    hints = {"GPU-a": (0,), "MIG-b": (0,), "GPU-c": hint}
    expected, seen = hints_are_right(Numa(hints, PLACED, 2), 3)
    words = ", ".join(map(str, hint)) or "none"
    assert (expected, seen) == (
        RIGHT,
        f"devices at the NUMA nodes of their GPUs: 2; GPU-c: kubelet {words}, bus 1",
    )


def test_judges_nothing_by_a_kubelet_that_lists_no_device() -> None:
    expected, seen = hints_are_right(Numa({}, PLACED, 2), 3)
    assert (expected, seen) == (RIGHT, "devices at the NUMA nodes of their GPUs: 0")


def test_accepts_the_only_node_if_firmware_names_none() -> None:
    unnamed = {"GPU-a": -1}
    sentence = "devices at the NUMA nodes of their GPUs: 1"
    assert hints_are_right(Numa({"GPU-a": (0,)}, unnamed, 1), 1) == (sentence, sentence)
    assert hints_are_right(Numa({"GPU-a": ()}, unnamed, 2), 1) == (sentence, sentence)
    expected, seen = hints_are_right(Numa({"GPU-a": (0,)}, unnamed, 2), 1)
    assert seen != expected
    assert "GPU-a: kubelet 0, bus none" in seen


def test_skips_what_is_not_reported() -> None:
    with pytest.raises(NotApplicable, match="this kubelet does not report"):
        hints_are_right(Numa(None, PLACED, 2), 3)
    with pytest.raises(NotApplicable, match="the bus reports no GPU's NUMA node"):
        hints_are_right(Numa({"GPU-a": (0,)}, {"GPU-a": None}, 2), 1)
