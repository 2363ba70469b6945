"""What a container holds is never touched: the agent's process over a kubelet with bad manners."""

from __future__ import annotations

import asyncio
import json

import pytest

from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.device_manager import AdmissionFailed
from lab.fakes.simulator import on_simulated_node
from tests.agent.walk.oracle import boards

SEVEN, TWO = {"mig": {"1g.5gb": 7}}, {"mig": {"3g.20gb": 2}}
MIG = "nvidia.com/mig-1g.5gb"
GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
pytestmark = on_simulated_node


async def holding(node: AgentNode, *, init: bool = False) -> str:
    """Return a MIG device that a pod holds, known to the kubelet alone, in the way of a change."""
    await node.offered(MIG, 7)
    await node.kubelet.admit("team/notebook", MIG, init=init)
    (device,) = node.kubelet.held("team/notebook")[MIG]
    await asyncio.sleep(11)  # longer than an Allocate is remembered
    node.configure(TWO)
    await node.until(lambda: node.status.get("state") == "Waiting")
    return device


async def test_distrusts_a_kubelet_that_lists_nothing_after_its_start() -> None:
    async with agent_node(1, SEVEN) as node:
        device = await holding(node)
        for _ in range(3):
            await node.kubelet.restart(ready=False)
            await node.throughout(3, lambda: device in node.mig_devices())
            node.kubelet.ready = True
            await node.until(lambda: node.status["reason"] == "GPU 0: held by team/notebook")
        node.kubelet.end("team/notebook")
        await node.offered("nvidia.com/mig-3g.20gb", 2)
        assert device not in node.mig_devices()


async def test_keeps_a_pods_device_when_the_kubelet_loses_its_checkpoint() -> None:
    """To remove it is the usual advice for a damaged one; a device in use is free to it then."""
    async with agent_node(1, SEVEN) as node:
        device = await holding(node)
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        await node.kubelet.start()
        await node.throughout(13, lambda: device in node.mig_devices())
        await node.until(lambda: node.status["reason"] == "GPU 0: held by team/notebook")
        await node.kill()
        await node.start()
        await node.throughout(5, lambda: device in node.mig_devices())
        await node.until(lambda: node.status["reason"] == "GPU 0: held by team/notebook")
        node.kubelet.end("team/notebook")
        await node.offered("nvidia.com/mig-3g.20gb", 2)


@pytest.mark.parametrize("changed", ["before", "after"])
async def test_keeps_devices_when_agent_and_kubelet_end_together(changed: str) -> None:
    """The kubelet's checkpoint is lost, and no process is left that saw what it showed."""
    async with agent_node(1, SEVEN) as node:
        node.patience = 60  # for machines that are busy
        await node.offered(MIG, 7, 90)
        await node.kubelet.admit("team/notebook", MIG)
        (device,) = node.kubelet.held("team/notebook")[MIG]
        await asyncio.sleep(11)  # longer than an Allocate is remembered
        if changed == "before":
            node.configure(TWO)
            await node.until(lambda: node.status.get("state") == "Waiting")
        await node.kill()
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        node.configure(TWO)
        await node.kubelet.start()
        await node.start()
        await node.throughout(20, lambda: device in node.mig_devices())
        await node.until(lambda: node.status["reason"] == "GPU 0: held by team/notebook")
        node.kubelet.end("team/notebook")
        await node.offered("nvidia.com/mig-3g.20gb", 2)


async def test_keeps_devices_from_a_kubelet_that_lists_only_static_pods() -> None:
    """It has those from files at once, and those of the API when that answers."""
    async with agent_node(1, SEVEN) as node:
        device = await holding(node)
        node.kubelet.static = ("kube-system/kube-proxy",)
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        node.kubelet.ready = False
        await node.kubelet.start()
        await node.throughout(20, lambda: device in node.mig_devices())
        node.kubelet.ready = True
        await node.throughout(12, lambda: device in node.mig_devices())
        node.kubelet.end("team/notebook")
        await node.offered("nvidia.com/mig-3g.20gb", 2)


async def test_withholds_devices_of_forgotten_holders() -> None:
    """Without its checkpoint a kubelet takes all seven for free, while four are in use."""
    async with agent_node(1, SEVEN) as node:
        node.patience = 60  # for machines that are busy
        await node.offered(MIG, 7, 90)
        kept = []
        for number in range(4):
            await node.kubelet.admit(f"team/p{number}", MIG)
            kept += node.kubelet.held(f"team/p{number}")[MIG]
        await asyncio.sleep(3)
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        await node.kubelet.start()
        await node.offered(MIG, 7)
        given = []
        for number in range(3):
            await node.kubelet.admit(f"other/q{number}", MIG)
            given += node.kubelet.held(f"other/q{number}")[MIG]
        assert not set(given) & set(kept)
        with pytest.raises(AdmissionFailed, match="is still held by team/p"):
            await node.kubelet.admit("other/q3", MIG)
        await node.until(lambda: node.status["state"] == "Degraded")
        assert (
            "the kubelet has forgotten that team/p0, team/p1, team/p2, team/p3 hold"
            in (node.status["reason"])
        )
        # The next pod asks at once, and the kubelet takes all four for free.
        node.kubelet.end("team/p2")
        await node.kubelet.admit("other/q4", MIG)
        assert node.kubelet.held("other/q4")[MIG] == kept[2:3]
        await node.until(lambda: "team/p2" not in node.status["reason"], 30)
        for number in (0, 1, 3):
            node.kubelet.end(f"team/p{number}")
        await node.until(lambda: node.status["state"] == "Ready", 30)


async def test_frees_devices_after_a_boot_beside_pods_that_it_ended() -> None:
    """No container outlives a boot. Kubelets before 1.34 list the pods that failed over it."""
    async with agent_node(1, {}) as node:
        node.patience = 60  # for machines that are busy
        await node.offered(GPU, 1, 90)
        await node.kubelet.admit("team/train", GPU)
        await asyncio.sleep(3)
        await node.kill()
        await node.kubelet.stop()
        boot = node.driver / "proc/sys/kernel/random/boot_id"
        boot.parent.mkdir(parents=True, exist_ok=True)
        boot.write_text("the next boot\n")
        node.kubelet.lists_ended = True
        await node.kubelet.start()
        node.kubelet.end("team/train")
        await node.start()
        await node.offered(GPU, 1, 90)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kubelet.admit("team/next", GPU)


@pytest.mark.parametrize("seconds", [3, 14])
async def test_keeps_a_just_allocated_device_when_the_kubelet_loses_its_checkpoint(
    seconds: float,
) -> None:
    async with agent_node(1, SEVEN) as node:
        await node.offered(MIG, 7)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kubelet.admit("team/notebook", MIG)
        (device,) = node.kubelet.held("team/notebook")[MIG]
        await asyncio.sleep(seconds)
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        await node.kubelet.start()
        node.configure(TWO)
        await node.throughout(25, lambda: device in node.mig_devices())
        assert node.status["reason"] == "GPU 0: held by team/notebook"


async def test_keeps_the_device_of_an_init_container() -> None:
    async with agent_node(1, SEVEN) as node:
        device = await holding(node, init=True)
        await node.throughout(3, lambda: device in node.mig_devices())
        assert "container init of the pod with UID uid-1" in node.status["reason"]
        node.kubelet.end("team/notebook")
        await node.offered("nvidia.com/mig-3g.20gb", 2)


async def test_repartitions_nothing_when_started_while_the_api_is_away() -> None:
    async with agent_node(1, SEVEN) as node:
        await holding(node)
        before = node.mig_devices()
        await node.kill()
        node.api.silent = True
        node.kubelet.end("team/notebook")
        await node.start()
        await node.throughout(14, lambda: node.mig_devices() == before)
        node.api.silent = False
        node.api.forget_connections()
        await node.offered("nvidia.com/mig-3g.20gb", 2, 60)


async def test_treats_holders_as_unknown_without_the_kubelets_checkpoint() -> None:
    async with agent_node(1, SEVEN) as node:
        device = await holding(node)
        node.kubelet.ready = False

        def unknown() -> bool:
            # Again and again: each list that arrives makes the kubelet write its own.
            node.kubelet.checkpoint.write_text("{}")
            return "device holders cannot be determined" in node.status["reason"]

        await node.until(unknown)
        assert device in node.mig_devices()


@pytest.mark.parametrize(
    "damage", [b'{"Data": {"PodDevice', b"\xff\xfe\x00"], ids=["cut", "binary"]
)
async def test_rewrites_a_damaged_checkpoint_and_resumes_the_change(damage: bytes) -> None:
    """The kubelet writes it when a list arrives: somebody has to send one."""
    async with agent_node(1, SEVEN) as node:
        await node.offered(MIG, 7)
        await asyncio.sleep(1)
        node.kubelet.checkpoint.write_bytes(damage)
        node.configure(TWO)
        await node.until(lambda: "device holders cannot be determined" in node.status["reason"])
        await node.offered("nvidia.com/mig-3g.20gb", 2)


async def test_shares_no_gpu_while_a_pod_holds_it_whole() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        await node.kubelet.admit("team/train", GPU)
        (held,) = node.kubelet.held("team/train")[GPU]
        node.configure({"timeSlicing": {"replicas": 4}})
        await node.offered(SHARED, 4)
        assert not any(held in name for name in node.kubelet.endpoints[SHARED].healthy)
        # Nor by an agent that has forgotten everything and finds the kubelet silent.
        await node.kill()
        (node.folder / "state/state.json").unlink()
        await node.kubelet.restart(ready=False)
        await node.start()
        await node.offered(SHARED, 4)
        await node.throughout(
            2, lambda: not any(held in d for d in node.kubelet.endpoints[SHARED].healthy)
        )
        node.kubelet.ready = True
        node.kubelet.end("team/train")
        await node.offered(SHARED, 8)


async def test_allocates_shares_and_whole_devices_of_one_name_never_together() -> None:
    """`renameByDefault: false`, as NVIDIA's plugin has it by default."""
    shares = {"timeSlicing": {"replicas": 3, "renameByDefault": False}}
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        await node.kubelet.admit("team/train", GPU)
        (held,) = node.kubelet.held("team/train")[GPU]
        node.configure(shares)
        await node.offered(GPU, 3)
        assert not any(held in name for name in node.kubelet.endpoints[GPU].healthy)
        node.kubelet.end("team/train")
        await node.offered(GPU, 6)
        await node.kubelet.admit("team/share", GPU)
        (held,) = node.kubelet.held("team/share")[GPU]
        node.configure({})
        await node.offered(GPU, 1)
        assert held.split("::")[0] not in node.kubelet.endpoints[GPU].healthy


async def test_keeps_a_device_whose_device_nodes_were_removed() -> None:
    """The driver shows instances then, but no MIG device on them, as if they were incomplete."""
    async with agent_node(1, SEVEN) as node:
        await node.offered(MIG, 7)
        await node.kubelet.admit("team/notebook", MIG)
        (device,) = node.kubelet.held("team/notebook")[MIG]
        await asyncio.sleep(11)  # longer than an Allocate is remembered
        for path in (node.driver / "dev/nvidia-caps").iterdir():
            path.unlink()
        await node.throughout(15, lambda: device in boards(node)[0].parts)
        await node.offered(MIG, 7)
        assert device in node.kubelet.endpoints[MIG].healthy


async def test_evicts_by_uid_without_blocking() -> None:
    async with agent_node(2, {}, change={"policy": "evict"}) as node:
        await node.offered(GPU, 2)
        await node.kubelet.admit("team/a", GPU)
        await node.kubelet.admit("team/b", GPU)
        node.api.evictions_hang = True
        node.configure(SEVEN, change={"policy": "evict"})
        await node.until(lambda: len(node.api.evictions) == 2)
        uids = {
            (name, body["deleteOptions"]["preconditions"]["uid"])
            for name, body in node.api.evictions
        }
        assert uids == {("a", "uid-1"), ("b", "uid-2")}
        # Health is reported while the evictions hang.
        node.simulate("fault", "xid", "1", "48")
        await node.until(lambda: node.status["gpus"][1]["state"] == "Degraded", 3)


async def test_counts_a_gpu_lost_at_start_as_not_free() -> None:
    """The agent has never decided about it, and the kubelet is silent when it comes back."""
    health = {"recoverAfter": "1s"}
    async with agent_node(1, {}, health=health) as node:
        await node.offered(GPU, 1)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kubelet.admit("team/train", GPU)
        await node.kill()
        path = node.folder / "state/state.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "applied": {}}))
        node.simulate("fault", "lost", "0")
        node.configure({"timeSlicing": {"replicas": 2}}, health=health)
        await node.start()
        await node.until(lambda: "GPU is lost" in node.status.get("reason", ""))
        node.kubelet.answer_seconds = 8.0
        await asyncio.sleep(6)  # no earlier answer is under way
        node.simulate("fault", "clear", "0")
        await node.until(lambda: "GPU is lost" not in node.status["reason"], 30)
        await node.throughout(5, lambda: node.kubelet.allocatable(SHARED) == 0)
