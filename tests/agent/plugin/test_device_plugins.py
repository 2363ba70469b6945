"""The agent's side of the kubelet's protocol, over real sockets against the fake kubelet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.inject.container_edits import ContainerEdits, Mount, Node, file_edits
from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs
from divvy.agent.plugin.allocation import ContainerAllocation, allocated_uuids
from divvy.agent.plugin.inventory import Resource
from divvy.agent.plugin.preferred_allocation import preferred_allocation
from divvy.agent.plugin.registration import DevicePlugins, retry_seconds
from lab.fakes.device_manager import AdmissionFailed, Container, Endpoint
from lab.fakes.kubelet import FakeKubelet, fake_kubelet
from lab.fakes.scene import running
from tests.agent.devices import limited, replicas, whole

SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"
EDITS = ContainerEdits(
    {"NVIDIA_VISIBLE_DEVICES": "void"},
    (Node("/dev/nvidia0", "/run/nvidia/driver/dev/nvidia0", "rw"),),
    (Mount("/usr/lib64/libcuda.so.1", "/run/nvidia/driver/libcuda.so.550", ("ro", "rbind")),),
)


class Allocator:
    """Answers as the agent does, without an agent."""

    async def refresh_holders(self) -> None:
        """Know who holds what."""

    def preferred_allocation(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> list[str]:
        return preferred_allocation(resource, available, required, size, {})

    def allocate(self, resource: Resource, device_ids: Sequence[str]) -> ContainerAllocation:
        uuids = allocated_uuids(resource, device_ids)
        if resource.name == SHARED:
            return ContainerAllocation(tuple(f"divvy.gpu/gpu={uuid}" for uuid in uuids))
        return ContainerAllocation(
            (), file_edits(resource.files) if resource.kind == "file" else EDITS
        )

    async def start_container(self, resource: Resource, device_ids: Sequence[str]) -> None:
        """Let every container start."""


@asynccontextmanager
async def serving(
    folder: Path, *resources: Resource
) -> AsyncIterator[tuple[FakeKubelet, DevicePlugins]]:
    async with fake_kubelet(folder) as kubelet:
        plugin = DevicePlugins(kubelet.plugins, Allocator(), lambda: None)
        await plugin.advertise(resources)
        try:
            async with running(plugin.watch()):
                yield kubelet, plugin
        finally:
            await plugin.stop()


async def test_registers_and_lists_resources(sockets: Path) -> None:
    async with serving(sockets, whole(2), replicas(2, 4)) as (kubelet, plugin):
        await kubelet.until(
            lambda: (kubelet.allocatable(GPU), kubelet.allocatable(SHARED)) == (2, 8)
        )
        assert plugin.registered


async def test_sends_a_change_as_a_new_list_on_the_open_stream(sockets: Path) -> None:
    async with serving(sockets, replicas(2, 4)) as (kubelet, plugin):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        await plugin.advertise([replicas(2, 6)])
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 12)
        assert kubelet.registrations == [SHARED]
        assert kubelet.endpoints[SHARED].lists == 2


async def test_skips_sending_an_unchanged_list(sockets: Path) -> None:
    async with serving(sockets, replicas(2, 4)) as (kubelet, plugin):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        assert not await plugin.advertise([replicas(2, 4)])


async def test_withdraws_a_resource_to_zero_at_once(sockets: Path) -> None:
    async with serving(sockets, whole(2)) as (kubelet, plugin):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        await plugin.advertise([replicas(2, 4)])
        await kubelet.until(
            lambda: kubelet.allocatable(GPU) == 0 and kubelet.allocatable(SHARED) == 8
        )
        assert kubelet.endpoints[GPU].alive


async def test_keeps_an_unhealthy_device_listed(sockets: Path) -> None:
    async with serving(sockets, whole(2)) as (kubelet, plugin):
        first, second = whole(2).devices
        await plugin.advertise(
            [replace(whole(2), devices=(replace(first, unhealthy="XID 79"), second))]
        )
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 1)
        assert set(kubelet.endpoints[GPU].devices) == {"GPU-0", "GPU-1"}


async def test_serves_a_resource_of_any_valid_name(sockets: Path) -> None:
    """A socket's path may have 107 characters, a resource's name 317."""
    names = [f"{'a-department.' * 15}example.com/{'a100-' * 12}{end}" for end in "xy"]
    served = [replace(whole(2), name=name) for name in names]
    async with serving(sockets, *served) as (kubelet, _):
        for name in names:
            await kubelet.until(lambda n=name: kubelet.allocatable(n) == 2)  # type: ignore[misc]


async def test_keeps_its_registration_when_the_kubelet_replaces_a_stream(
    sockets: Path,
) -> None:
    async with serving(sockets, whole(2)) as (kubelet, plugin):
        await kubelet.until(lambda: plugin.current)
        first = kubelet.endpoints.pop(GPU)
        plugin._stream_ended(GPU)
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        assert first.watch is not None
        first.watch.cancel()
        await asyncio.sleep(1.5)
        assert plugin.current
        assert kubelet.registrations == [GPU, GPU]


async def test_reregisters_with_a_new_kubelet(sockets: Path) -> None:
    async with serving(sockets, whole(2), replicas(2, 4)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        await kubelet.restart()
        await kubelet.until(
            lambda: (kubelet.allocatable(GPU), kubelet.allocatable(SHARED)) == (2, 8)
        )


def test_retries_soon_at_first_and_never_more_than_once_a_second_in_the_end() -> None:
    pauses = [retry_seconds(failures) for failures in range(40)]
    assert pauses[:5] == [0.01, 0.02, 0.04, 0.08, 0.16]
    assert pauses[7:] == [1.0] * 33


async def test_is_back_before_a_restarted_kubelet_admits_pods(sockets: Path) -> None:
    """After attempts that came too early, too; mostly, since a machine may be busy."""
    init = (Container("init", {GPU: 1}, init=True), Container("main", {GPU: 1}))
    async with serving(sockets, whole(2)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        kubelet.readmission_seconds = 0.2
        for number in range(6):
            await kubelet.admit_pod(f"default/pod-{number}", init)
            await asyncio.sleep(1.1 + 0.17 * number)
            await kubelet.stop()
            # As a kubelet that was killed leaves it: nobody listens there.
            with socket.socket(socket.AF_UNIX) as left:
                left.bind(str(kubelet.plugins / "kubelet.sock"))
            await asyncio.sleep(0.3)
            await kubelet.start()
            await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
            await asyncio.sleep(0.25)
            kubelet.end(f"default/pod-{number}")
        assert len(kubelet.failed) < 3


async def test_reregisters_when_the_kubelet_ends_the_stream(sockets: Path) -> None:
    async with serving(sockets, whole(2)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        watch = kubelet.endpoints[GPU].watch
        assert watch is not None
        watch.cancel()
        await kubelet.until(lambda: len(kubelet.registrations) == 2)
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)


async def test_asks_a_kubelet_that_ends_every_stream_only_now_and_then(sockets: Path) -> None:
    class Unwilling(FakeKubelet):
        async def _watch(self, endpoint: Endpoint) -> None:
            stream = stubs.DevicePluginStub(endpoint.channel).ListAndWatch(api.Empty())
            await stream.read()
            endpoint.watch = None  # its name is free again
            stream.cancel()

    kubelet = Unwilling(sockets)
    await kubelet.start()
    plugin = DevicePlugins(kubelet.plugins, Allocator(), lambda: None)
    await plugin.advertise([whole(2)])
    try:
        async with running(plugin.watch()):
            await kubelet.until(lambda: bool(kubelet.registrations))
            await asyncio.sleep(3)
            assert 2 <= len(kubelet.registrations) <= 12
    finally:
        await plugin.stop()
        await kubelet.stop()


async def test_restores_a_removed_socket_and_reregisters(sockets: Path) -> None:
    async with serving(sockets, whole(2)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        kubelet.endpoints[GPU].socket.unlink()
        await kubelet.until(lambda: len(kubelet.registrations) == 2)
        assert kubelet.endpoints[GPU].socket.exists()


async def test_allocates_the_cdi_name_of_a_device(sockets: Path) -> None:
    async with serving(sockets, replicas(2, 4)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        answer = await kubelet.admit("default/one", SHARED)
        (held,) = kubelet.held("default/one")[SHARED]
        assert [cdi_device.name for cdi_device in answer.cdi_devices] == [
            f"divvy.gpu/gpu={held.split('::')[0]}"
        ]


async def test_allocates_nodes_mounts_and_environment_without_cdi(sockets: Path) -> None:
    async with serving(sockets, whole(2)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        answer = await kubelet.admit("default/one", GPU)
        assert not answer.cdi_devices
        assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": "void"}
        (node,), (mount,) = answer.devices, answer.mounts
        assert (node.container_path, node.permissions) == ("/dev/nvidia0", "rw")
        assert node.host_path == "/run/nvidia/driver/dev/nvidia0"
        assert (mount.container_path, mount.read_only) == ("/usr/lib64/libcuda.so.1", True)


async def test_refuses_two_shares_for_one_container_with_the_reason(sockets: Path) -> None:
    async with serving(sockets, replicas(2, 4)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        with pytest.raises(AdmissionFailed, match="at most 1 per container"):
            await kubelet.admit("default/two", SHARED, 2)


async def test_allocates_fifty_different_shares_to_fifty_pods_at_once(sockets: Path) -> None:
    async with serving(sockets, replicas(8, 10)) as (kubelet, _):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 80)
        for number in range(50):
            await kubelet.admit(f"default/pod-{number}", SHARED)
        held = [name for pod in kubelet.pods for name in kubelet.held(pod)[SHARED]]
        assert len(set(held)) == 50
        per_gpu = {
            gpu: sum(name.startswith(f"{gpu}::") for name in held)
            for gpu in {name.split("::")[0] for name in held}
        }
        assert sorted(per_gpu.values()) == [6, 6, 6, 6, 6, 6, 7, 7]


@pytest.mark.parametrize("keeps_connections", [False, True])
async def test_registers_again_for_other_options(sockets: Path, keeps_connections: bool) -> None:
    """Kubernetes 1.37 refuses a second registration while the first one's stream is open."""
    async with serving(sockets, replicas(2, 4)) as (kubelet, plugin):
        kubelet.keeps_connections = keeps_connections
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        assert not kubelet.endpoints[SHARED].pre_start
        await plugin.advertise((limited(2, 4, 1024),))
        await kubelet.until(
            lambda: kubelet.endpoints[SHARED].pre_start and kubelet.allocatable(SHARED) == 8
        )
        await kubelet.until(lambda: plugin.registered)
        # The stream that it ended itself is no reason to register once more.
        registered = len(kubelet.registrations)
        await asyncio.sleep(2.5)
        assert len(kubelet.registrations) == registered
        assert kubelet.allocatable(SHARED) == 8


async def test_gives_every_name_a_socket_of_its_own(sockets: Path) -> None:
    """The second socket of example.com/dev is called as the first of example.com/dev.1."""
    first, second = (
        replace(whole(n), name=f"example.com/dev{end}") for n, end in ((3, ""), (1, ".1"))
    )
    async with serving(sockets, first, second) as (kubelet, plugin):
        await kubelet.until(lambda: plugin.current)
        watch = kubelet.endpoints[first.name].watch
        assert watch is not None
        watch.cancel()  # the kubelet ends the stream
        await kubelet.until(lambda: len(kubelet.registrations) > 2)
        await kubelet.restart()
        await kubelet.until(lambda: plugin.current and kubelet.allocatable(first.name) == 3)


async def test_registers_options_that_change_while_the_kubelet_answers(sockets: Path) -> None:
    plain = replicas(2, 4)
    with_limiter = replace(limited(2, 4, 1000), name=plain.name)
    answered, goes_on = asyncio.Event(), asyncio.Event()

    class Late(FakeKubelet):
        async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
            answer = await super().Register(request, context)
            answered.set()
            await goes_on.wait()
            return answer

    kubelet = Late(sockets)
    await kubelet.start()
    plugin = DevicePlugins(kubelet.plugins, Allocator(), lambda: None)
    await plugin.advertise([plain])
    try:
        async with running(plugin.watch()):
            await answered.wait()
            await plugin.advertise([with_limiter])
            goes_on.set()
            await kubelet.until(lambda: kubelet.endpoints[plain.name].pre_start, 5)
    finally:
        await plugin.stop()
        await kubelet.stop()


async def test_reports_a_missing_plugin_folder_until_it_is_there(sockets: Path) -> None:
    changes: list[str] = []

    def note() -> None:
        changes.append(plugin.problem)

    plugin = DevicePlugins(sockets / "device-plugins", Allocator(), note)
    await plugin.advertise([whole(2), replicas(2, 4)])
    assert f"{GPU} cannot be served: {sockets}" in plugin.problem
    assert not plugin.registered
    assert changes == [plugin.problem]
    async with fake_kubelet(sockets) as kubelet, running(plugin.watch()):
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2 and plugin.current)
        assert (changes[-1], plugin.problem) == ("", "")
    await plugin.stop()


@pytest.mark.parametrize("when", ["from the start", "from another kubelet's start on"])
async def test_registers_what_it_can_serve_beside_what_it_cannot(sockets: Path, when: str) -> None:
    place = sockets / "device-plugins/divvy-nvidia.com_gpu.sock"
    if when == "from the start":
        place.mkdir(parents=True)
    async with serving(sockets, whole(2), replicas(2, 4)) as (kubelet, plugin):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        if when != "from the start":
            await kubelet.stop()
            place.unlink(missing_ok=True)
            place.mkdir()
            await kubelet.start()
        await kubelet.until(lambda: f"{GPU} cannot be served" in plugin.problem)
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        registered = len(kubelet.registrations)
        await asyncio.sleep(2.5)
        assert len(kubelet.registrations) == registered
        place.rmdir()
        await kubelet.until(lambda: kubelet.allocatable(GPU) == 2 and plugin.current)
        assert plugin.problem == ""


async def test_serves_nothing_beside_another_plugin_if_a_socket_cannot_be_removed(
    sockets: Path,
) -> None:
    folder = sockets / "device-plugins"
    (folder / "divvy-nvidia.com_gpu.sock").mkdir(parents=True)
    async with serving(sockets, whole(2), replicas(2, 4)) as (kubelet, plugin):
        await kubelet.until(lambda: kubelet.allocatable(SHARED) == 8)
        with socket.socket(socket.AF_UNIX) as rival:
            rival.bind(str(folder / "nvidia-gpu.sock"))
            rival.listen()
            await kubelet.until(lambda: bool(plugin.rivals))
            await kubelet.until(lambda: not list(folder.glob("divvy-*shared*.sock")))


async def test_tells_a_refusal_once(sockets: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A kubelet's socket on which nobody listens is tried every second."""
    async with serving(sockets, whole(2)) as (kubelet, plugin):
        await kubelet.until(lambda: plugin.current)
        place = kubelet.plugins / "kubelet.sock"
        await kubelet.stop()
        place.unlink(missing_ok=True)
        place.touch()
        await asyncio.sleep(4.5)
        assert len([r for r in caplog.records if "refused" in r.message]) == 1
