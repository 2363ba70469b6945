"""Faults stay small: the agent's process with one thing broken, and everything else at work."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from divvy.agent.inject.limiter import LIBRARIES
from divvy.lab.simulated_driver import SOURCE
from tests.agent.nvml.test_driver import slow_nvidia_smi
from tests.fakes.agent import AgentNode, agent_node
from tests.fakes.scene import play

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
SEVEN = {"mig": {"1g.5gb": 7}}
pytestmark = [
    pytest.mark.agent_process,
    pytest.mark.skipif(
        not Path(SOURCE / "build/divvy-simd").exists(), reason="the simulated driver is not built"
    ),
]


def test_a_gpu_that_hangs_takes_its_own_devices_and_comes_back() -> None:
    async def scene() -> None:
        async with agent_node(4, {}, health={"recoverAfter": "3s"}) as node:
            await node.offered(GPU, 4)
            node.simulate("fault", "slow", "0", "60000")
            await node.offered(GPU, 3)
            await node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 3)
            assert "does not answer" in node.status["gpus"][0]["reason"]
            node.simulate("fault", "clear", "0")

    play(scene)


def test_a_gpu_that_falls_off_the_bus_takes_no_other_with_it() -> None:
    """Its last event is XID 79, and by then it does not tell who it is."""

    async def scene() -> None:
        async with agent_node(3, {}) as node:
            await node.offered(GPU, 3)
            node.simulate("fault", "lost", "0")
            await node.offered(GPU, 2)
            await node.throughout(3, lambda: node.kubelet.allocatable(GPU) == 2)

    play(scene)


async def fault_while_the_kubelet_is_asked(node: AgentNode) -> None:
    node.kubelet.answer_seconds = 4.0
    node.configure({}, change={"policy": "never"})
    await asyncio.sleep(1)  # it is asking
    node.simulate("fault", "xid", "1", "48")
    await node.offered(GPU, 1, 2)


def test_health_does_not_wait_for_a_kubelet_that_takes_its_time() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            await fault_while_the_kubelet_is_asked(node)

    play(scene)


def test_a_slow_reset_ends_in_the_layout_while_health_goes_on() -> None:
    async def scene() -> None:
        async with agent_node(2, {"timeSlicing": {"replicas": 2}}) as node:
            await node.offered(SHARED, 4)
            slow_nvidia_smi(node.driver, 4)
            node.simulate("fault", "no-activation", "0")
            node.configure([{"devices": [0], **SEVEN}, {"timeSlicing": {"replicas": 2}}])
            await node.until(lambda: node.status["gpus"][0]["state"] == "Changing")
            await asyncio.sleep(1)
            node.simulate("fault", "xid", "1", "48")
            await node.offered(SHARED, 0, 2)  # GPU 1 is sick, GPU 0 in its reset
            await node.offered(MIG, 7)

    play(scene)


def test_an_nvidia_smi_that_never_ends_is_in_nobodys_way() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            slow_nvidia_smi(node.driver, 1000)
            node.simulate("fault", "no-activation", "0")
            node.configure([{"devices": [0], **SEVEN}, {}])
            await node.until(lambda: node.status["gpus"][0]["state"] == "Changing")
            await asyncio.sleep(2)
            node.simulate("fault", "xid", "1", "48")
            await node.offered(GPU, 0, 3)
            node.configure([{"devices": [0], **SEVEN}, {"timeSlicing": {"replicas": 2}}])
            await node.until(lambda: SHARED in node.kubelet.endpoints)

    play(scene)


def test_three_hundred_scrapers_take_no_gpu_away() -> None:
    async def scene() -> None:
        async with agent_node(4, {}) as node:
            await node.offered(GPU, 4)
            for index in range(4):
                node.simulate("fault", "slow", str(index), "20")
            end = time.monotonic() + 8

            async def scrape() -> int:
                answered = 0
                while time.monotonic() < end:
                    answered += b"divvy_devices" in await get(node, "/metrics")
                return answered

            answers = await asyncio.gather(
                *(scrape() for _ in range(300)),
                node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 4),
            )
            assert sum(number or 0 for number in answers) > 100

    play(scene)


def test_two_thousand_idle_connections_take_no_gpu_away() -> None:
    async def scene() -> None:
        # As where containerd's unit sets no LimitNOFILE.
        async with agent_node(2, {}) as node, few_files(node):
            await node.offered(GPU, 2)
            writers = []
            for _ in range(2000):
                with contextlib.suppress(OSError):  # closed already, to make way
                    writers.append((await asyncio.open_connection("127.0.0.1", node.port))[1])
            await node.throughout(5, lambda: node.kubelet.allocatable(GPU) == 2)
            assert b"200 OK" in await get(node, "/healthz")
            for writer in writers:
                writer.close()
            assert node.agent is not None
            assert node.agent.returncode is None

    play(scene)


def test_a_new_stack_file_arrives_although_the_watch_died_without_a_word() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            node.environment["DIVVY_WATCH_SECONDS"] = "4"
            await node.kill()
            await node.start()
            await node.offered(GPU, 2)
            node.api.forget_connections()
            node.configure({"timeSlicing": {"replicas": 2}})
            await node.offered(SHARED, 4, 20)

    play(scene)


@pytest.mark.parametrize("full", ["at the agent's start", "later"])
def test_a_full_disk_is_reported_and_the_devices_stay(full: str) -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node, full_state(node, later=full == "later"):
            await node.offered(GPU, 2)
            node.configure({"timeSlicing": {"replicas": 2}})
            await node.until(lambda: "No space left" in node.status["reason"])
            await node.until(lambda: "nothing is repartitioned meanwhile" in node.status["reason"])
            await node.throughout(3, lambda: node.kubelet.allocatable(GPU) == 2)
            (node.folder / "state/fill").unlink()
            await node.offered(SHARED, 4)
            await node.until(lambda: node.status["state"] == "Ready")

    play(scene)


def test_what_the_agent_could_not_save_is_not_given_out_twice() -> None:
    """The disk was full when a change ended, and the change was taken back."""

    async def scene() -> None:
        async with agent_node(1, {}) as node:
            await node.offered(GPU, 1)
            await node.kubelet.admit("team/train", GPU)
            node.configure({"timeSlicing": {"replicas": 2}})
            await node.until(lambda: node.status.get("state") == "Waiting")
            (node.folder / "state/.state.json.new").mkdir()  # no write succeeds
            node.kubelet.end("team/train")
            await node.offered(SHARED, 2)
            await node.kubelet.admit("team/share", SHARED)
            await node.until(lambda: "cannot be saved" in node.status["reason"])
            for _ in range(2):
                await node.kill()
                node.kubelet.answer_seconds = 1.0
                node.configure({})
                await node.start()
                await node.throughout(4, lambda: node.kubelet.allocatable(GPU) == 0)
            # The kubelet falls silent after the agent has seen the holder.
            node.kubelet.answer_seconds = 0.0
            await node.until(lambda: "held by team/share" in node.status["reason"])
            node.kubelet.answer_seconds = 6.0
            await node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 0)
            node.kubelet.answer_seconds = 0.0
            node.kubelet.end("team/share")
            (node.folder / "state/.state.json.new").rmdir()
            await node.offered(GPU, 1)

    play(scene)


def test_a_hook_that_hangs_holds_up_no_health_report() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.kill()
            hook = node.folder / "hook"
            hook.write_text("#!/bin/sh\nexec sleep 60\n")
            hook.chmod(0o755)
            node.environment["DIVVY_HOOK"] = str(hook)
            await node.start()
            await node.until(lambda: "timed out" in node.status.get("reason", ""), 40)
            await node.offered(GPU, 2)
            for index in range(2):
                node.simulate("fault", "xid", str(index), "48")
                await node.offered(GPU, 1 - index, 2)

    play(scene)


def test_shares_are_unhealthy_until_the_limiter_can_be_installed() -> None:
    """Each pod that is sent there would be refused, and its controller send another."""

    async def scene() -> None:
        limit = {"limit": "3000Mi", "action": "prevent"}
        async with agent_node(1, {}) as node:
            await node.kill()
            libraries = node.folder / "limiter"
            node.environment["DIVVY_LIMITER"] = str(libraries)
            node.configure({"timeSlicing": {"replicas": 4, "memoryLimit": limit}})
            await node.start()
            await node.until(lambda: "the limiter is not" in node.status.get("reason", ""))
            await node.offered(SHARED, 0)
            libraries.mkdir()
            for name in LIBRARIES:
                (libraries / name).touch()
            await node.offered(SHARED, 4)
            await node.until(lambda: node.status["state"] == "Ready")

    play(scene)


def test_input_nested_too_deeply_changes_nothing() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            node.api.configure("[" * 100_000)
            await node.until(lambda: "nested too deeply" in node.status.get("reason", ""))
            assert node.kubelet.allocatable(GPU) == 2
            await node.kill()
            (node.folder / "state/state.json").write_text("[" * 100_000)
            await node.start()
            node.configure({})
            await node.offered(GPU, 2)

    play(scene)


def test_a_fault_outlives_an_agent_that_was_waiting_for_the_kubelet() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            await fault_while_the_kubelet_is_asked(node)
            await node.kill()
            node.kubelet.answer_seconds = 0.0
            await node.start()
            await node.until(lambda: "XID 48" in node.status.get("reason", ""))
            await node.throughout(5, lambda: node.kubelet.allocatable(GPU) <= 1)

    play(scene)


def test_an_ignored_xid_is_one_from_the_agents_start_on() -> None:
    """A GPU that does not answer makes the first look at the others a long one."""

    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            await node.kill()
            node.simulate("fault", "slow", "0", "60000")
            await node.start()
            for _ in range(20):
                await asyncio.sleep(0.2)
                node.simulate("fault", "xid", "1", "13")
            await node.offered(GPU, 1)
            assert "XID" not in node.status["reason"]

    play(scene)


def test_an_exchanged_gpu_follows_the_profile_after_another_plugin_is_gone() -> None:
    async def scene() -> None:
        rules = [{"devices": [0], "timeSlicing": {"replicas": 3}}, {"devices": [1]}]
        async with agent_node(2, rules) as node:
            await node.offered(SHARED, 3)
            await node.until(lambda: node.status.get("state") == "Ready")
            await node.kill()
            path = node.folder / "state/state.json"
            text = path.read_text()
            first = json.loads(text)["assignment"]["0"]
            path.write_text(text.replace(first, "GPU-dead0000-0000-0000-0000-000000000000"))
            with socket.socket(socket.AF_UNIX) as other:
                place = node.kubelet.plugins / "nvidia-gpu.sock"
                other.bind(str(place))
                other.listen()
                await node.start()
                await node.until(lambda: "another device plugin" in node.status.get("reason", ""))
                await asyncio.sleep(2)
            place.unlink()
            await node.offered(SHARED, 3)
            await node.until(lambda: node.status["state"] == "Ready")

    play(scene)


@pytest.mark.parametrize("boot", ["the same boot", "another boot"])
@pytest.mark.parametrize("moved", [False, True], ids=["same slot", "another slot"])
def test_exchanged_gpus_follow_the_profile(boot: str, moved: bool) -> None:
    """One in the same PCI slot always; one in another slot when the node was restarted."""

    async def scene() -> None:
        rules = [{"devices": [0], **SEVEN}, {"devices": [1], "timeSlicing": {"replicas": 3}}]
        async with agent_node(2, rules) as node:
            await node.offered(MIG, 7)
            await node.offered(SHARED, 3)
            await node.until(lambda: node.status.get("state") == "Ready")
            await node.kill()
            # The GPUs of the last boot were others, by their UUIDs.
            path = node.folder / "state/state.json"
            state = json.loads(path.read_text())
            text = path.read_text()
            for index, uuid in state["assignment"].items():
                text = text.replace(uuid, f"GPU-dead0000-0000-0000-0000-00000000000{index}")
            if boot == "another boot":
                text = text.replace(next(iter(state["last_seen"].values())), "an earlier boot")
            if moved:
                for gpu in state["gpus"]:
                    text = text.replace(gpu["pci_bus_id"], "0000FFFF:" + gpu["pci_bus_id"][9:])
            path.write_text(text)
            await node.start()
            if moved and boot == "the same boot":
                await node.until(lambda: "the GPU is lost" in node.status.get("reason", ""))
                return
            await node.offered(SHARED, 3)
            await node.offered(MIG, 7)
            await node.until(lambda: node.status["state"] == "Ready")
            assert node.kubelet.allocatable(GPU) == 0
            assert node.api.node["metadata"]["labels"]["nvidia.com/gpu.count"] == "2"

    play(scene)


async def get(node: AgentNode, path: str) -> bytes:
    """Return what the agent's web endpoint answers, b"" where it closes the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    except OSError:
        return b""
    return answer


@asynccontextmanager
async def few_files(node: AgentNode) -> AsyncIterator[None]:
    """Limit the agent's open files as systemd's default does."""
    subprocess.run(["prlimit", f"--pid={node.pid}", "--nofile=1024:1024"], check=True)
    yield


@asynccontextmanager
async def full_state(node: AgentNode, later: bool) -> AsyncIterator[None]:
    """Put the agent's state on a file system without room, from its next start on or later."""
    state = node.folder / "state"
    await node.offered(GPU, 2)
    await node.kill()
    saved = (state / "state.json").read_bytes()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(state)], check=True)

    def fill() -> None:
        command = ["dd", "if=/dev/zero", f"of={state / 'fill'}", "bs=4k"]
        subprocess.run(command, capture_output=True, check=False)

    try:
        (state / "state.json").write_bytes(saved)
        if not later:
            fill()
        await node.start()
        if later:
            await node.until(lambda: len(node.kubelet.registrations) > 1)
            fill()
        yield
    finally:
        await node.kill()
        subprocess.run(["umount", str(state)], check=True)
