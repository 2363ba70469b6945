"""GPUs that a reload of the driver loses or renumbers: what is held on them stays theirs."""

from __future__ import annotations

import json
import os
import signal

import pytest

from lab.cluster.flat_file import gpu_uuid
from lab.fakes.agent import NODE, AgentNode, agent_node
from lab.fakes.device_manager import StartFailed
from lab.fakes.renumbered import reload_driver
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.reload_walk import nodes_by_device
from tests.agent.claims.scene import BY_SIZE, claims_node, names, specifications

pytestmark = on_simulated_node
GPU = "nvidia.com/gpu"
FIRST, SECOND = gpu_uuid(NODE, 0), gpu_uuid(NODE, 1)


def nodes_of(node: AgentNode, uuid: str) -> set[str]:
    return {path for name, path in nodes_by_device(node).items() if uuid in name}


async def test_takes_away_the_specification_of_a_claim_on_a_lost_gpu() -> None:
    """Its container must not start on the GPU that has its device node now."""
    async with claims_node(2, BY_SIZE) as node:
        first, second = names(node, "share")
        lost = node.api.resources.allocate("lost", first, memory="3000Mi", cores="30")
        kept = node.api.resources.allocate("kept", second)
        given = await node.claims.prepare(lost, kept)
        assert nodes_of(node, FIRST) == {"/dev/nvidia0"}
        reload_driver(node.driver, [1])
        await node.until(lambda: nodes_of(node, SECOND) == {"/dev/nvidia0"})
        assert nodes_of(node, FIRST) == set()
        # While no driver answered, no claim was described.
        await node.until(lambda: len(specifications(node)) == 1)
        assert kept["metadata"]["uid"] in json.dumps(specifications(node))
        # Back, behind the other one now.
        reload_driver(node.driver, [1, 0])
        await node.until(lambda: nodes_of(node, FIRST) == {"/dev/nvidia1"})
        await node.until(lambda: nodes_of(node, SECOND) == {"/dev/nvidia0"})
        assert await node.claims.prepare(lost, kept) == given
        await node.until(lambda: len(specifications(node)) == 2)


@pytest.mark.parametrize("profile", [{}, BY_SIZE], ids=["plugin", "claims"])
async def test_describes_nothing_while_no_driver_answers(profile: dict[str, object]) -> None:
    """When it answers again, a device node may be another GPU's: nothing starts before that."""
    async with claims_node(2, BY_SIZE) if profile else agent_node(2, profile) as node:
        if profile:
            first, _ = names(node, "share")
            await node.claims.prepare(node.api.resources.allocate("mine", first))
        await node.until(lambda: nodes_of(node, FIRST) == {"/dev/nvidia0"})
        os.kill(int((node.driver / "run/divvy-simd.pid").read_text()), signal.SIGSTOP)
        (node.driver / "proc/driver/nvidia/version").unlink()
        await node.until(lambda: not nodes_by_device(node), 60)


async def test_starts_containers_of_swapped_gpus_on_their_own() -> None:
    async with claims_node(2, BY_SIZE) as node:
        first, second = names(node, "share")
        for name, share in (("one", first), ("two", second)):
            await node.claims.prepare(node.api.resources.allocate(name, share, memory="3000Mi"))
        reload_driver(node.driver, [1, 0])
        await node.until(lambda: nodes_of(node, FIRST) == {"/dev/nvidia1"})
        await node.until(lambda: nodes_of(node, SECOND) == {"/dev/nvidia0"})


async def test_takes_away_what_it_cannot_write_again() -> None:
    """The folder of specifications has no room when the driver numbers its GPUs otherwise."""
    async with claims_node(2, BY_SIZE) as node:
        first, _ = names(node, "share")
        claim = node.api.resources.allocate("mine", first)
        await node.claims.prepare(claim)
        uid = claim["metadata"]["uid"]
        for name in ("divvy.gpu-gpu.json", f"divvy.gpu-claim-{uid}.json"):
            (node.folder / f"cdi/.{name}.new").mkdir()
        reload_driver(node.driver, [1, 0])
        await node.until(lambda: not nodes_of(node, FIRST) - {"/dev/nvidia1"}, 60)
        await node.until(lambda: "is not written" in node.status["reason"])


async def test_refuses_a_start_with_a_device_node_that_is_another_gpus_now() -> None:
    """Without CDI the kubelet keeps what a container was given, whatever the driver does."""
    async with agent_node(2, {}, health={"recoverAfter": "1s"}) as node:
        await node.kill()
        config = node.folder / "containerd/config.toml"
        config.parent.mkdir()
        config.write_text('[plugins."io.containerd.cri.v1.runtime"]\nenable_cdi = false\n')
        await node.start()
        await node.offered(GPU, 2)
        await node.until(lambda: node.kubelet.endpoints[GPU].pre_start)
        for pod in ("team/one", "team/two"):
            answer = await node.kubelet.admit(pod, GPU)
            assert answer.devices
            await node.kubelet.start_container(pod)
        (of_one,) = node.kubelet.held("team/one")[GPU]
        kept = "team/one" if of_one == SECOND else "team/two"
        lost = "team/two" if of_one == SECOND else "team/one"
        reload_driver(node.driver, [1])
        await node.offered(GPU, 1)
        with pytest.raises(StartFailed, match="is another GPU's now: delete the pod"):
            await node.kubelet.start_container(lost)
        reload_driver(node.driver, [0, 1])
        await node.offered(GPU, 2)
        for pod in (kept, lost):
            await node.kubelet.start_container(pod)
