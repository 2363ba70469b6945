"""Replicas by MPS as the kubelet sees them, and what their containers get."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from divvy.agent.gpu.device_id import device_ids, is_client, numeric_order, physical
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.labels import feature_labels
from divvy.agent.mps.client import client_edits
from divvy.agent.plugin.allocation import Refused, allocated_uuids, device_shares
from divvy.agent.plugin.container_start import OF_MPS, require_no_other_gpu
from divvy.agent.plugin.inventory import AdvertisedGpu, Resource, inventory, without_mps
from divvy.agent.plugin.preferred_allocation import preferred_allocation
from divvy.model import DesiredGpu, Offer
from divvy.model.sharing import Sharing
from tests.agent.devices import gpu, snapshot

SHARED = "nvidia.com/gpu.shared"
BY_MPS = Sharing(4, memory_mib=10240, weight=25, threads=25)
BOTH = snapshot(gpu(0), gpu(1))


def listed(sharing: Sharing = BY_MPS) -> Resource:
    offer = Offer(SHARED, "gpu", None, sharing)
    layouts = (DesiredGpu(gpu.uuid, gpu.index, 0, None, (offer,)) for gpu in BOTH.gpus)
    (resource,) = inventory(map(AdvertisedGpu, layouts), BOTH, {})
    return resource


def test_distinguishes_mps_ids_from_turns() -> None:
    ids = list(device_ids("GPU-0", 12, by_mps=True))
    assert ids[0] == "GPU-0::mps-0"
    assert all(map(is_client, ids))
    assert not any(map(is_client, device_ids("GPU-0", 2)))
    assert physical(ids[3]) == "GPU-0"
    assert sorted(ids, key=numeric_order) == ids


def test_marks_shares_of_a_gpu_without_daemon_unhealthy() -> None:
    problems = {"GPU-0": "its MPS daemon does not answer", "GPU-1": ""}
    (resource,) = without_mps([listed()], problems.__getitem__)
    assert {(device.gpu, device.unhealthy) for device in resource.devices} == {
        ("GPU-0", "its MPS daemon does not answer"),
        ("GPU-1", None),
    }
    turns = listed(Sharing(4))
    assert list(without_mps([turns], problems.__getitem__)) == [turns]


def test_makes_a_container_of_mps_the_client_of_one_gpu() -> None:
    resource = listed()
    assert allocated_uuids(resource, ["GPU-0::mps-0", "GPU-0::mps-3"]) == ("GPU-0",)
    with pytest.raises(Refused, match="replicas of 2 GPUs requested"):
        allocated_uuids(resource, ["GPU-0::mps-0", "GPU-1::mps-0"])


def test_prefers_several_replicas_on_the_fullest_gpu_that_has_them() -> None:
    resource = listed()
    free = [device.id for device in resource.devices if device.id != "GPU-1::mps-0"]
    three = preferred_allocation(resource, free, [], 3, {})
    assert sorted(three) == ["GPU-1::mps-1", "GPU-1::mps-2", "GPU-1::mps-3"]
    four = preferred_allocation(resource, free, [], 4, {})
    assert {physical(device_id) for device_id in four} == {"GPU-0"}
    assert preferred_allocation(resource, free, [], 5, {}) == []
    two = preferred_allocation(resource, free, ["GPU-0::mps-1"], 2, {})
    assert "GPU-0::mps-1" in two
    assert {physical(device_id) for device_id in two} == {"GPU-0"}


def test_counts_the_container_by_the_limiter_on_top_of_mps() -> None:
    prevented = Sharing(4, memory_mib=10240, action="prevent", weight=25, threads=25)
    (share,) = device_shares(listed(prevented), ["GPU-0::mps-0", "GPU-0::mps-1"])
    assert share.memory_mib == 20480
    edits = client_edits(PurePosixPath("/host/pipe"), PurePosixPath("/host/shm"), share.sharing)
    assert edits.env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=20480M"
    assert edits.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"


def test_mounts_the_gpus_pipes_read_only_and_the_daemons_shm() -> None:
    memory = PurePosixPath("/run/divvy/mps/GPU-0")
    edits = client_edits(PurePosixPath("/var/lib/divvy/mps/GPU-0/pipe"), memory, BY_MPS)
    mount, shm = edits.mounts
    assert (mount.path, mount.host) == ("/usr/lib/divvy/mps", "/var/lib/divvy/mps/GPU-0/pipe")
    assert mount.read_only
    assert edits.env["CUDA_MPS_PIPE_DIRECTORY"] == mount.path
    assert (shm.path, shm.host, shm.read_only) == ("/dev/shm", str(memory), False)
    assert edits.nodes == ()


def test_gives_a_container_of_mps_no_other_gpu() -> None:
    own = Holder("default/p", "main", SHARED, "GPU-0::mps-0", "uid")
    other = Holder("default/p", "main", "nvidia.com/gpu", "GPU-1", "uid")
    require_no_other_gpu(SHARED, [own.device_id], [own], why=OF_MPS)
    with pytest.raises(Refused, match="the MPS daemon of this share does not serve"):
        require_no_other_gpu(SHARED, [own.device_id], [own, other], why=OF_MPS)


def test_labels_the_sharing_strategy_mps() -> None:
    labels = feature_labels(BOTH, [listed()], None)
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert "nvidia.com/mps.capable" not in labels
