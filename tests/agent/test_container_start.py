"""Containers with a limited share start alone, whatever the kubelet shows and when."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from divvy.agent.inject.limiter import LIBRARIES
from lab.fakes.agent import AgentNode, agent_node, unmount
from lab.fakes.device_manager import Container, StartFailed
from lab.fakes.simulator import on_simulated_node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SHARED, GPU, OTHER = "nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/gpu.other"
PREVENT = {"limit": "3000Mi", "action": "prevent"}
pytestmark = on_simulated_node


def limited(devices: list[int], **more: object) -> dict[str, object]:
    sharing = {"replicas": 4, "memoryLimit": PREVENT, "failRequestsGreaterThanOne": False, **more}
    return {"devices": devices, "timeSlicing": sharing}


@asynccontextmanager
async def node_with(rules: object) -> AsyncIterator[AgentNode]:
    """Run an agent that has a limiter to install, empty as it is."""
    async with agent_node(2, {}) as node:
        await node.kill()
        libraries = node.folder / "limiter"
        libraries.mkdir()
        for name in LIBRARIES:
            (libraries / name).touch()
        node.environment["DIVVY_LIMITER"] = str(libraries)
        node.configure(rules)
        await node.start()
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status.get("state") == "Ready")
        yield node


@pytest.mark.parametrize("order", [(SHARED, GPU), (GPU, SHARED)])
async def test_holds_back_a_container_with_a_share_and_another_gpu(
    order: tuple[str, str],
) -> None:
    async with node_with([limited([0]), {"devices": [1]}]) as node:
        kubelet = node.kubelet
        await node.offered(GPU, 1)
        both = Container("main", dict.fromkeys(order, 1))
        beside = Container("beside", {SHARED: 1})
        await kubelet.admit_pod("team/both", (both, beside))
        for _ in range(2):  # the kubelet tries again
            with pytest.raises(StartFailed, match="also has nvidia.com/gpu, .*two containers"):
                await kubelet.start_container("team/both")
        await kubelet.start_container("team/both", "beside")
        kubelet.end("team/both")
        # The next pod of a StatefulSet has its name, and perhaps its share.
        await kubelet.admit("team/both", SHARED)
        await kubelet.start_container("team/both")
        await kubelet.admit("team/whole", GPU)
        await kubelet.start_container("team/whole")


async def test_holds_back_shares_of_two_resources_but_not_two_replicas() -> None:
    rules = [limited([0]), limited([1], resourceName="gpu.other")]
    async with node_with(rules) as node:
        await node.offered(OTHER, 4)
        await node.kubelet.admit_pod("team/two", (Container("main", {SHARED: 1, OTHER: 1}),))
        with pytest.raises(StartFailed, match="two containers"):
            await node.kubelet.start_container("team/two")
        await node.kubelet.admit("team/twice", SHARED, 2)
        await node.kubelet.start_container("team/twice")


async def test_admits_by_the_kubelets_list_alone_but_not_by_nothing() -> None:
    async with node_with([limited([0]), {"devices": [1]}]) as node:
        kubelet = node.kubelet
        await node.offered(GPU, 1)
        await kubelet.admit("team/alone", SHARED)
        await kubelet.admit_pod("team/both", (Container("main", {SHARED: 1, GPU: 1}),))
        kubelet.checkpoint.write_text("{")
        await kubelet.start_container("team/alone")
        with pytest.raises(StartFailed, match="also has"):
            await kubelet.start_container("team/both")
        kubelet.ready = False  # its list is empty
        with pytest.raises(StartFailed, match="does not show .* retried"):
            await kubelet.start_container("team/alone")
        kubelet.ready = True
        await kubelet.start_container("team/alone")


async def test_asks_for_pre_start_only_under_a_limiting_profile() -> None:
    watched = {"timeSlicing": {"replicas": 2}}
    async with node_with([limited([0]), {"devices": [1]}]) as node:
        endpoints = node.kubelet.endpoints
        assert endpoints[SHARED].pre_start
        assert not endpoints[GPU].pre_start
        node.configure([{"devices": [0], **watched}, {"devices": [1]}])
        await node.until(lambda: not endpoints[SHARED].pre_start)
        await node.offered(SHARED, 2)
        node.configure([limited([0]), {"devices": [1]}])
        await node.until(lambda: endpoints[SHARED].pre_start)
        await node.offered(SHARED, 4)


async def test_admits_a_container_from_before_the_limit_beside_another_gpu() -> None:
    """It has no limiter that anything could take the place of."""
    bare = {"timeSlicing": {"replicas": 4, "failRequestsGreaterThanOne": False}}
    async with node_with([{"devices": [0], **bare}, {"devices": [1]}]) as node:
        kubelet = node.kubelet
        await node.offered(GPU, 1)
        await kubelet.admit_pod("team/both", (Container("main", {SHARED: 1, GPU: 1}),))
        await kubelet.start_container("team/both")
        node.configure([limited([0]), {"devices": [1]}])
        await node.until(lambda: kubelet.endpoints[SHARED].pre_start)
        await node.offered(SHARED, 4)
        await kubelet.start_container("team/both")
        await kubelet.restart()
        await node.offered(SHARED, 4)
        await node.offered(GPU, 1)
        await kubelet.start_container("team/both")
        # The next pod has the limiter.
        kubelet.end("team/both")
        await kubelet.admit_pod("team/both", (Container("main", {SHARED: 1, GPU: 1}),))
        with pytest.raises(StartFailed, match="two containers"):
            await kubelet.start_container("team/both")


async def test_starts_no_container_with_a_share_while_the_agent_is_away() -> None:
    async with node_with([limited([0]), {"devices": [1]}]) as node:
        kubelet = node.kubelet
        await kubelet.admit("team/alone", SHARED)
        await kubelet.start_container("team/alone")
        await node.kill()
        with pytest.raises(StartFailed):
            await kubelet.start_container("team/alone")
        await node.start()
        await node.offered(SHARED, 4)
        await kubelet.start_container("team/alone")


async def test_recreates_the_files_of_a_share_after_a_boot() -> None:
    """The kubelet makes the container of what Allocate answered before: the paths are the same."""
    async with node_with([limited([0])]) as node:
        answer = await node.kubelet.admit("team/share", SHARED)
        files = [
            Path(mount.host_path)
            for mount in answer.mounts
            if mount.host_path.startswith(str(node.folder / "tenants"))
        ]
        assert {path.name for path in files} == {"limits", "account"}
        await node.kubelet.start_container("team/share")
        before = [path.stat().st_ino for path in files]
        await node.kubelet.start_container("team/share")
        assert [path.stat().st_ino for path in files] == before
        await node.kill()
        await node.offered(SHARED, 0)  # else what the kubelet knew before is waited for
        unmount(node.folder / "tenants")
        assert not any(path.exists() for path in files)
        await node.start()
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kubelet.start_container("team/share")
        assert all(path.is_file() for path in files)


async def test_refuses_a_share_when_its_files_cannot_be_placed() -> None:
    async with node_with([limited([0])]) as node:
        await node.kill()
        (node.folder / "file").touch()
        node.environment["DIVVY_SHARE_FOLDER"] = str(node.folder / "file/tenants")
        await node.start()
        await node.until(lambda: "cannot be mounted" in node.status.get("reason", ""))
        await node.kubelet.until(lambda: node.kubelet.allocatable(SHARED) == 0)
