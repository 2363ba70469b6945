"""Other programs on the same GPUs: seen, named, and left alone with them."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from conformance.observe.kubelet_plugins import _LOOK
from divvy.agent.__main__ import Absence
from divvy.agent.gpu.coexistence import (
    feature_discovery_beside,
    mig_manager_at_work,
    others_at_work,
    sockets_of_others,
)
from divvy.agent.node_lock import NodeLock
from divvy.agent.plugin.plugin_sockets import folders_version, serving_sockets, sockets_beside
from divvy.agent.plugin.registration import DevicePlugins
from lab.fakes.agent import agent_node
from lab.fakes.api import NAMESPACE
from lab.fakes.kubelet import fake_kubelet
from lab.fakes.scene import running
from lab.fakes.simulator import needs_simulator
from tests.agent.devices import whole
from tests.agent.plugin.test_device_plugins import Allocator

GPU = "nvidia.com/gpu"


def listen(path: Path) -> socket.socket:
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(str(path))
    server.listen()
    return server


def test_counts_a_socket_only_while_somebody_listens_on_it(sockets: Path) -> None:
    with listen(sockets / "nvidia-gpu.sock"), listen(sockets / "divvy-nvidia.com_gpu.sock"):
        beside = sockets_beside([sockets, sockets / "none"])
        assert beside == {sockets / "nvidia-gpu.sock": "NVIDIA's device plugin"}
        assert serving_sockets(beside) == {"nvidia-gpu.sock": "NVIDIA's device plugin"}
    assert serving_sockets(beside) == {}


def test_counts_a_socket_whose_plugin_is_too_busy_to_accept(sockets: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as waiting:
        server.bind(str(sockets / "nvidia-gpu.sock"))
        server.listen(0)
        with suppress(BlockingIOError):
            while True:
                client = waiting.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(sockets / "nvidia-gpu.sock"))
        assert [*serving_sockets(sockets_beside([sockets]))] == ["nvidia-gpu.sock"]
        # The same look from within the agent's pod, as verify has it.
        look = _LOOK.replace("/var/lib/kubelet/device-plugins", str(sockets))
        seen = subprocess.run([sys.executable, "-c", look], capture_output=True, check=True)
        assert json.loads(seen.stdout)["sockets"] == ["nvidia-gpu.sock"]


def test_names_the_other_plugin() -> None:
    sockets = {"nvidia-gpu.sock": "NVIDIA's device plugin"}
    assert "NVIDIA's device plugin (nvidia-gpu.sock)" in others_at_work(sockets, ())


def test_recognises_hami_by_its_annotation_beside_nvidias_sockets() -> None:
    sockets = {"nvidia-gpu.sock": "NVIDIA's device plugin"}
    problem = others_at_work(sockets, {"hami.io/node-nvidia-register"})
    assert "HAMi's device plugin (nvidia-gpu.sock)" in problem
    assert others_at_work({}, {"hami.io/node-nvidia-register"}) == ""


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("nvidia-gpu.shared.sock", "NVIDIA's"),
        ("nvidiaGPU-1712345678.sock", "GKE's"),
        ("volcano.sock", "Volcano's"),
        ("aliyungpushare.sock", "Aliyun's"),
        ("divvy-nvidia.com_gpu.sock", None),
        ("kubelet.sock", None),
        ("rdma-hca.sock", None),
    ],
)
def test_recognises_plugin_sockets_by_name(name: str, who: str | None) -> None:
    owner = sockets_of_others([name]).get(name)
    assert owner is None if who is None else str(owner).startswith(who)


def test_reports_gfd_without_stepping_back() -> None:
    label = {"nvidia.com/gfd.timestamp": "1"}
    assert "GPU Feature Discovery" in feature_discovery_beside(label)
    assert feature_discovery_beside({}) == ""


@pytest.mark.parametrize(
    ("state", "at_work"), [("pending", True), ("rebooting", True), ("success", False)]
)
def test_counts_the_mig_manager_only_while_it_repartitions(state: str, at_work: bool) -> None:
    problem = mig_manager_at_work({"nvidia.com/mig.config.state": state})
    assert ("MIG manager" in problem) is at_work
    assert mig_manager_at_work({}) == ""


async def test_yields_gpus_to_another_plugin_and_takes_them_back(sockets: Path) -> None:
    async with fake_kubelet(sockets) as kubelet:
        seen = asyncio.Event()
        plugin = DevicePlugins(kubelet.plugins, Allocator(), seen.set)
        await plugin.advertise((whole(2),))
        async with running(plugin.watch()):
            await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
            path = kubelet.plugins / "nvidia-gpu.sock"
            with listen(path):
                await kubelet.until(lambda: kubelet.allocatable(GPU) == 0)
                before = len(kubelet.registrations)
                await asyncio.wait_for(seen.wait(), 1)
                await asyncio.sleep(0.6)
                assert (len(kubelet.registrations), plugin.registered) == (before, False)
            path.unlink()
            await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        await plugin.stop()


async def test_yields_gpus_to_nvidias_driver_of_claims_and_takes_them_back(
    sockets: Path,
) -> None:
    registry = sockets / "registry"
    registry.mkdir()
    async with fake_kubelet(sockets) as kubelet:
        plugin = DevicePlugins(kubelet.plugins, Allocator(), lambda: None, registry)
        await plugin.advertise((whole(2),))
        async with running(plugin.watch()):
            await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
            # Calm by now: only a look at this folder as well sees who comes there.
            await asyncio.sleep(2.5)
            for name in ("compute-domain.nvidia.com-reg.sock", "gpu.nvidia.com-1a2b-reg.sock"):
                with listen(registry / name):
                    await asyncio.sleep(1.2)
                    beside = "gpu." in name
                    assert kubelet.allocatable(GPU) == (0 if beside else 2)
                    others = others_at_work(plugin.rivals, ())
                    assert ("another DRA driver runs on this node: NVIDIA's" in others) is beside
                (registry / name).unlink()
                await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
        await plugin.stop()


async def test_lists_an_unchanged_folder_only_once(
    sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []

    def counted(folders: Iterable[Path]) -> dict[Path, str]:
        looks.append(time.monotonic())
        return sockets_beside(folders)

    monkeypatch.setattr("divvy.agent.plugin.registration.sockets_beside", counted)
    async with fake_kubelet(sockets) as kubelet:
        plugin = DevicePlugins(kubelet.plugins, Allocator(), lambda: None)
        await plugin.advertise((whole(2),))
        async with running(plugin.watch()):
            await kubelet.until(lambda: kubelet.allocatable(GPU) == 2)
            await asyncio.sleep(2.5)
            looks.clear()
            await asyncio.sleep(2)
            assert looks == []
            # Made before, and listened on when its folder has long been quiet again.
            other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            other.bind(str(kubelet.plugins / "nvidia-gpu.sock"))
            with other:
                await asyncio.sleep(2.5)
                assert kubelet.allocatable(GPU) == 2
                other.listen()
                await kubelet.until(lambda: kubelet.allocatable(GPU) == 0)
        await plugin.stop()


def test_trusts_no_folder_version_while_it_may_still_change(tmp_path: Path) -> None:
    quiet, other = tmp_path / "quiet", tmp_path / "other"
    quiet.mkdir()
    other.mkdir()
    long_ago = time.time_ns() - 60 * 10**9
    os.utime(quiet, ns=(long_ago, long_ago))
    assert folders_version([quiet]) == (long_ago,)
    assert folders_version([quiet, other]) is None
    # The clock was put back meanwhile.
    ahead = time.time_ns() + 60 * 10**9
    os.utime(other, ns=(ahead, ahead))
    assert folders_version([other]) is None
    assert folders_version([tmp_path / "none"]) is None


def test_names_the_agent_that_already_serves_the_node(tmp_path: Path) -> None:
    first, second = NodeLock(tmp_path, "one/divvy"), NodeLock(tmp_path, "two/divvy")
    assert first.take() == ""
    assert second.take() == "one/divvy"
    assert not second.is_free


def test_leaves_the_node_to_the_agent_that_had_it_unless_it_is_told(tmp_path: Path) -> None:
    """An update, an eviction or an OOM kill ends that agent for a moment."""
    first, second = NodeLock(tmp_path, "one/divvy"), NodeLock(tmp_path, "two/divvy")
    assert first.take() == ""
    first.release()
    assert second.take() == "one/divvy"
    assert second.is_free
    assert first.take() == ""
    first.release()
    assert second.take(take_over=True) == ""
    second.release()
    assert first.take() == "two/divvy"


def test_takes_a_node_whose_former_agent_stays_away() -> None:
    away = Absence()
    assert not away.lasts(0, is_away=True)
    assert not away.lasts(599, is_away=True)
    assert not away.lasts(599.5, is_away=False), "it has come back"
    assert not away.lasts(1198, is_away=True)
    assert away.lasts(1798, is_away=True)


@needs_simulator
@pytest.mark.agent_process
async def test_changes_nothing_on_anothers_node_until_it_is_told() -> None:
    async with agent_node(1, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered("nvidia.com/gpu.shared", 4)
        await node.kill()
        node.configure({"mig": {"3g.20gb": 2}})
        (node.folder / "state/agent.owner").write_text("another/divvy\n")
        await node.start()
        words = "this node is served by the Divvy agent of another/divvy, which does not run now"
        await node.until(lambda: words in node.status.get("reason", ""))
        assert node.status["state"] == "Degraded"
        await node.throughout(3, lambda: "MIG" not in node.mig_devices())
        annotations = node.api.node["metadata"]["annotations"]
        annotations["divvy.gpu/agent"] = f"{NAMESPACE}/divvy"
        await node.offered("nvidia.com/mig-3g.20gb", 2)
        await node.until(lambda: node.status["state"] == "Ready")
        assert (node.folder / "state/agent.owner").read_text() == f"{NAMESPACE}/divvy\n"
