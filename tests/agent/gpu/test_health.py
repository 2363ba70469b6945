"""An XID takes every device of the GPU; calm brings it back."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.gpu.health import (
    Health,
    after_probe,
    after_scan,
    after_xid,
    gpu_fault,
    restored,
)
from divvy.agent.plugin.inventory import AdvertisedGpu, inventory
from divvy.model import DesiredGpu, Offer
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, snapshot

IGNORED = {13, 31, 43, 45, 68, 109}


def test_ignores_an_xid_on_the_ignore_list() -> None:
    assert after_xid(Health(), 43, "GPU-0", None, IGNORED) == Health()


def test_marks_only_the_gpu_of_an_xid() -> None:
    health = after_xid(Health(), 79, "GPU-0", None, IGNORED)
    assert health.reason("GPU-0", None) == "XID 79"
    assert health.reason("GPU-0", 3) == "XID 79"
    assert health.reason("GPU-1", None) is None


def test_marks_only_the_instance_of_an_xid() -> None:
    health = after_xid(Health(), 94, "GPU-0", 3, IGNORED)
    assert health.reason("GPU-0", 3) == "XID 94"
    assert health.reason("GPU-0", 4) is None


def test_recovers_after_the_whole_calm_time() -> None:
    sick = after_xid(Health(), 79, "GPU-0", None, IGNORED)
    calm = after_probe(sick, "GPU-0", None, 100.0, 60.0)
    assert after_probe(calm, "GPU-0", None, 159.0, 60.0).reason("GPU-0", None) == "XID 79"
    assert after_probe(calm, "GPU-0", None, 160.0, 60.0).reason("GPU-0", None) is None


def test_restarts_the_calm_time_after_a_bad_probe() -> None:
    sick = after_xid(Health(), 79, "GPU-0", None, IGNORED)
    calm = after_probe(sick, "GPU-0", None, 100.0, 60.0)
    again = after_probe(calm, "GPU-0", "does not answer", 130.0, 60.0)
    calm = after_probe(again, "GPU-0", None, 140.0, 60.0)
    assert after_probe(calm, "GPU-0", None, 170.0, 60.0).reason("GPU-0", None) is not None


def test_marks_every_replica_of_a_sick_gpu_unhealthy() -> None:
    offer = Offer(
        "nvidia.com/gpu.shared", "gpu", None, Sharing(4, one_per_container=True, weight=25)
    )
    advertised = AdvertisedGpu(DesiredGpu("GPU-0", 0, 0, None, (offer,)))
    (resource,) = inventory([advertised], snapshot(gpu(0)), {"GPU-0": "XID 79"})
    assert [device.unhealthy for device in resource.devices] == ["XID 79"] * 4


def test_forgets_faults_of_another_boot() -> None:
    before = after_xid(after_xid(Health(), 48, "GPU-a", None, ()), 13, "GPU-b", 2, ())
    assert restored(before.saved(), {"GPU-a": "now", "GPU-b": "now"}, "now") == before
    rest = restored(before.saved(), {"GPU-a": "before", "GPU-b": "now"}, "now")
    assert set(rest.faults) == {("GPU-b", 2)}


def test_recovers_a_gpu_some_time_after_the_drivers_last_request() -> None:
    asking = replace(gpu(0), recovery="a reset of the GPU")
    reason = "the driver asks for a reset of the GPU"
    health = after_scan(Health(), snapshot(asking), 0.0, 60.0)
    assert gpu_fault(asking, health) == reason
    for now in (10.0, 69.0):
        health = after_scan(health, snapshot(gpu(0)), now, 60.0)
        assert gpu_fault(gpu(0), health) == reason
    assert gpu_fault(gpu(0), after_scan(health, snapshot(gpu(0)), 70.0, 60.0)) is None
    # It asks again, for something else, before it is back: its calm time begins again.
    reboot = replace(gpu(0), recovery="a reboot of the node")
    health = after_scan(health, snapshot(reboot), 69.0, 60.0)
    assert gpu_fault(reboot, health) == "the driver asks for a reboot of the node"
    assert gpu_fault(gpu(0), after_scan(health, snapshot(gpu(0)), 128.0, 60.0)) is not None


def test_reports_the_drivers_request_beside_the_fault() -> None:
    asking = replace(gpu(0), recovery="a reset of the GPU")
    hit = after_xid(Health(), 48, asking.uuid, None, ())
    health = after_scan(hit, snapshot(asking), 0.0, 60.0)
    assert gpu_fault(asking, health) == "XID 48; the driver asks for a reset of the GPU"
    health = after_scan(health, snapshot(asking), 100.0, 60.0)
    assert gpu_fault(gpu(0), health) == "XID 48"


def test_marks_a_gpu_unhealthy_by_the_drivers_request_beside_any_fault() -> None:
    asking = replace(gpu(0), recovery="a reset of the GPU")
    assert gpu_fault(asking, Health()) == "the driver asks for a reset of the GPU"
    hit = after_xid(Health(), 48, asking.uuid, None, ())
    assert gpu_fault(asking, hit) == "XID 48; the driver asks for a reset of the GPU"
    assert gpu_fault(gpu(0), Health()) is None
