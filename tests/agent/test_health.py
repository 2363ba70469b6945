"""An XID takes every device of the GPU; calm brings it back."""

from __future__ import annotations

from divvy.agent.health import Health, after_probe, after_xid
from divvy.agent.inventory import inventory
from divvy.model import DesiredGpu, DesiredNode, Offer
from tests.agent.devices import gpu, snapshot

IGNORED = {13, 31, 43, 45, 68, 109}


def test_an_ignored_xid_changes_nothing() -> None:
    assert after_xid(Health(), 43, "GPU-0", None, ["GPU-0"], IGNORED) == Health()


def test_an_xid_marks_its_gpu_only() -> None:
    health = after_xid(Health(), 79, "GPU-0", None, ["GPU-0", "GPU-1"], IGNORED)
    assert health.reason("GPU-0", None) == "XID 79"
    assert health.reason("GPU-0", 3) == "XID 79"
    assert health.reason("GPU-1", None) is None


def test_an_xid_of_an_instance_leaves_its_neighbours() -> None:
    health = after_xid(Health(), 94, "GPU-0", 3, ["GPU-0"], IGNORED)
    assert health.reason("GPU-0", 3) == "XID 94"
    assert health.reason("GPU-0", 4) is None


def test_an_xid_without_a_gpu_marks_all() -> None:
    health = after_xid(Health(), 79, None, None, ["GPU-0", "GPU-1"], IGNORED)
    assert health.reason("GPU-1", None) == "XID 79"


def test_recovery_needs_the_whole_calm_time() -> None:
    sick = after_xid(Health(), 79, "GPU-0", None, ["GPU-0"], IGNORED)
    calm = after_probe(sick, "GPU-0", None, 100.0, 60.0)
    assert after_probe(calm, "GPU-0", None, 159.0, 60.0).reason("GPU-0", None) == "XID 79"
    assert after_probe(calm, "GPU-0", None, 160.0, 60.0).reason("GPU-0", None) is None


def test_a_bad_probe_starts_the_calm_time_anew() -> None:
    sick = after_xid(Health(), 79, "GPU-0", None, ["GPU-0"], IGNORED)
    calm = after_probe(sick, "GPU-0", None, 100.0, 60.0)
    again = after_probe(calm, "GPU-0", "does not answer", 130.0, 60.0)
    calm = after_probe(again, "GPU-0", None, 140.0, 60.0)
    assert after_probe(calm, "GPU-0", None, 170.0, 60.0).reason("GPU-0", None) is not None


def test_every_replica_of_a_sick_gpu_is_unhealthy() -> None:
    offer = Offer("nvidia.com/gpu.shared", "gpu", None, 4, True, None)
    desired = DesiredNode("p", "s", "pool", (DesiredGpu("GPU-0", 0, 0, None, (offer,)),), ())
    (resource,) = inventory(desired, snapshot(gpu(0)), {"GPU-0": "XID 79"})
    assert [device.unhealthy for device in resource.devices] == ["XID 79"] * 4
