"""Device files of other vendors: which are offered, and what a container gets."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from divvy.agent.inject.container_edits import Node, file_edits
from divvy.agent.inject.device_files import device_files, file_resources
from divvy.agent.plugin.allocation import Refused, allocated_uuids
from divvy.agent.plugin.preferred_allocation import preferred_allocation
from divvy.model import FileDevices
from tests.agent.plugin.test_device_plugins import serving

HCA = FileDevices(resource="rdma/hca", paths=("/dev/infiniband/uverbs*", "/dev/rdma_cm"), count=8)
FILES = {
    "/dev/infiniband/uverbs*": ["/dev/infiniband/uverbs1", "/dev/infiniband/uverbs0"],
    "/dev/rdma_cm": ["/dev/rdma_cm"],
}


def test_maps_every_device_of_a_resource_to_all_its_files() -> None:
    (resource,) = file_resources([HCA], lambda pattern: FILES[pattern])
    assert [device.id for device in resource.devices] == [f"rdma-hca::{n}" for n in range(8)]
    assert allocated_uuids(resource, ["rdma-hca::3"]) == ("rdma-hca",)
    paths = ("/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1", "/dev/rdma_cm")
    assert file_edits(resource.files).nodes == tuple(Node(path, path, "rw") for path in paths)


def test_refuses_two_devices_of_one_file_resource() -> None:
    (resource,) = file_resources([HCA], lambda pattern: FILES[pattern])
    with pytest.raises(Refused, match="at most 1 per container"):
        allocated_uuids(resource, ["rdma-hca::0", "rdma-hca::1"])


def test_prefers_the_first_free_file_device() -> None:
    (resource,) = file_resources([HCA], lambda pattern: FILES[pattern])
    free = [device.id for device in resource.devices][2:]
    assert preferred_allocation(resource, free, [], 1, {}) == ["rdma-hca::2"]


def test_offers_nothing_on_a_node_without_the_files() -> None:
    assert file_resources([HCA], lambda _: ()) == ()


def test_matches_only_device_nodes(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("device nodes are made by root only")
    (tmp_path / "infiniband").mkdir()
    os.mknod(tmp_path / "infiniband/uverbs0", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    (tmp_path / "infiniband/uverbs1").write_text("no device")
    find = device_files(tmp_path)
    assert list(find("/dev/infiniband/uverbs*")) == ["/dev/infiniband/uverbs0"]
    assert list(find("/dev/infini**/uverbs**")) == ["/dev/infiniband/uverbs0"]
    assert list(find("/dev/**/uverbs0")) == ["/dev/infiniband/uverbs0"]
    assert list(find("/dev/../infiniband/uverbs0")) == []
    assert list(find("/dev/")) == []


async def test_gives_a_container_the_files_as_device_specs(sockets: Path) -> None:
    (resource,) = file_resources([HCA], lambda pattern: FILES[pattern])
    async with serving(sockets, resource) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable("rdma/hca") == 8)
        answer = await kubelet.admit("default/mpi", "rdma/hca")
        specs = [(spec.host_path, spec.container_path) for spec in answer.devices]
        assert ("/dev/rdma_cm", "/dev/rdma_cm") in specs
        assert not answer.cdi_devices
