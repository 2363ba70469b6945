"""A node with driver 615: each container's share is a namespace of its GPU's MPS daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.paths import REPOSITORY
from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.device_manager import Container, StartFailed
from lab.fakes.scene import play
from lab.fakes.simulator import needs_root, on_simulated_node
from tests.agent.mps.kills import kill_at_random
from tests.agent.mps.mps_node import (
    GPU,
    MPS,
    SHARED,
    allocated,
    ask,
    client_environment,
    container,
    daemon,
    end,
    exit_code,
    nothing_is_left,
    program,
)

R615, R580 = "615.71.09", "580.95.05"
PER_REPLICA_MIB = 10240
OUT_OF_MEMORY, RPC_FAILURE, TERMINATED = 2, 806, 810
SMS_OF_A_QUARTER, SMS_OF_HALF = "26", "54"
pytestmark = [*on_simulated_node, needs_root]


def answer_lines(node: AgentNode, *words: str) -> list[str]:
    """Return the lines that a node's daemon answers to a command of version 3."""
    (pipes,) = (node.folder / "state/mps").glob("*/pipe")
    done = subprocess.run(
        [str(node.driver / "usr/bin/nvidia-cuda-mps-control"), "-p", "3", *words],
        env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.splitlines()


def namespaces(node: AgentNode) -> dict[str, tuple[str, str]]:
    """Return the namespaces of a node's only GPU: memory and per cent of the threads."""
    lines = answer_lines(node, "namespace", "list", "--format=csv,noheader")
    return {
        name: (memory, threads)
        for name, _, _, memory, threads, *_ in (line.split(",") for line in lines)
    }


def sms(node: AgentNode, answer: Any, **more: str) -> str:
    """Return the SMs that a process of a container sees, with these variables of its own."""
    environment, memory = client_environment(answer)
    script = (
        "import sys; from pathlib import Path; from lab.driver_clients.cuda import Cuda\n"
        "print(Cuda(Path(sys.argv[1])).init().attribute(16))"
    )
    mounted = 'mount --bind "$0" /dev/shm && exec "$@"'
    library = node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    done = subprocess.run(
        [
            *("unshare", "--mount", "sh", "-c", mounted, str(memory)),
            *(sys.executable, "-c", script, str(library)),
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment, **more},
        cwd=REPOSITORY,
    )
    return done.stdout.strip()


async def test_gives_each_container_a_namespace_with_its_limits() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        command = Path(f"/proc/{daemon(node)}/cmdline").read_text().split("\0")
        assert command[1:] == ["-f", "-m", "-p", "3", ""]
        assert namespaces(node) == {"default": ("40G", "100.00")}
        containers = (Container("small", {SHARED: 1}), Container("large", {SHARED: 2}))
        answers = await node.kubelet.admit_pod("default/both", containers)
        for name in ("small", "large"):
            await node.kubelet.start_container("default/both", name)
        limits_by_namespace = {
            name: limits for name, limits in namespaces(node).items() if name != "default"
        }
        assert sorted(limits_by_namespace.values()) == [("10G", "25.00"), ("20G", "50.00")]
        pipes = node.folder / "state/mps" / next(iter(node.status["gpus"]))["uuid"] / "pipe"
        for answer, replicas in zip(answers, (1, 2), strict=True):
            mounts = {mount.container_path: mount for mount in answer.mounts}
            mount = mounts["/usr/lib/divvy/mps"]
            assert Path(mount.host_path).parent == pipes / "uid_0"
            assert mount.read_only
            limit = replicas * PER_REPLICA_MIB
            within, beyond = (allocated(node, answer, limit + more) for more in (-600, 60))
            assert (exit_code(within), exit_code(beyond)) == (0, OUT_OF_MEMORY)
            end(within, beyond)
        assert sms(node, answers[1]) == SMS_OF_HALF


async def test_holds_a_container_that_drops_or_raises_its_variables() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        await node.kubelet.start_container("default/one")
        environment, memory = client_environment(answer)
        bare = {"CUDA_MPS_PIPE_DIRECTORY": environment["CUDA_MPS_PIPE_DIRECTORY"]}
        within = program(node, PER_REPLICA_MIB - 600, bare, memory)
        beyond = program(node, PER_REPLICA_MIB + 60, bare, memory)
        assert (exit_code(within), exit_code(beyond)) == (0, OUT_OF_MEMORY)
        end(within, beyond)
        raised = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100"}
        assert sms(node, answer, **raised) == SMS_OF_A_QUARTER
        # As with version 2: what NVIDIA measured, and the plan says.
        lifted = {**bare, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G,1=1G"}
        free = program(node, 20000, lifted, memory)
        assert exit_code(free) == 0
        end(free)


async def test_limits_a_container_after_its_init_container_as_its_own_share() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        containers = (
            Container("init", {SHARED: 1}, init=True),
            Container("main", {SHARED: 2}),
        )
        await node.kubelet.admit_pod("default/two", containers)
        for name in ("init", "main"):
            await node.kubelet.start_container("default/two", name)
        # With each pod that comes or goes, the daemon is told of the shares.
        for name in ("default/next", "default/another"):
            await node.kubelet.admit(name, SHARED)
            await node.kubelet.start_container(name)
            await node.throughout(1.5, lambda: namespaces(node)["share_0"] == ("20G", "50.00"))


async def test_keeps_a_containers_limits_when_its_profile_goes() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        await node.kubelet.admit("default/one", SHARED)
        await node.kubelet.start_container("default/one")
        before = namespaces(node)
        node.configure({})
        await node.until(lambda: "held by default/one" in str(node.status.get("reason")))
        of_share = {name: limits for name, limits in before.items() if name != "default"}
        # Between two of its programs it has no client that keeps them so.
        await node.throughout(2, lambda: of_share.items() <= namespaces(node).items())
        os.kill(daemon(node), signal.SIGKILL)
        await node.until(lambda: of_share.items() <= namespaces(node).items())


@pytest.mark.parametrize("victim", ["server", "daemon"])
async def test_makes_namespaces_again_if_the_server_or_the_daemon_died(victim: str) -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        await node.kubelet.start_container("default/one")
        before = namespaces(node)
        client = allocated(node, answer, 100)
        assert exit_code(client) == 0
        server = int(answer_lines(node, "server", "get", "uid_0", "pid")[0])
        os.kill(server if victim == "server" else daemon(node), signal.SIGKILL)
        await node.until(lambda: ask(client, "init") == RPC_FAILURE)
        await node.offered(SHARED, 0)
        end(client)  # as long as it runs, the GPU takes no other server
        await node.offered(SHARED, 4)
        # A program that is started again in its container needs no start of the container.
        await node.until(lambda: namespaces(node) == before)
        again = allocated(node, answer, 100)
        assert exit_code(again) == 0
        end(again)


async def test_keeps_the_server_of_a_container_that_the_kubelet_has_forgotten() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/forgotten", 100)
        assert exit_code(client) == 0
        end(client)  # between two of its programs
        await node.until(lambda: "share_0" in namespaces(node))
        before = answer_lines(node, "server", "get", "uid_0", "pid")
        await asyncio.sleep(1.5)  # the agent has looked who holds it
        await node.kubelet.stop()
        node.kubelet.checkpoint.unlink()
        await node.kubelet.start()
        await node.offered(SHARED, 4)
        await node.kubelet.admit("default/next", SHARED)
        await node.kubelet.start_container("default/next")
        assert answer_lines(node, "server", "get", "uid_0", "pid") == before


async def test_leaves_namespaces_and_clients_alone_when_the_agent_is_killed() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        before, of_daemon = namespaces(node), daemon(node)
        await node.kill()
        await node.start()
        await node.offered(SHARED, 4)
        assert (namespaces(node), daemon(node)) == (before, of_daemon)
        assert ask(client, "init") == 0
        end(client)


async def test_starts_no_container_with_other_limits_than_its_share_has() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        await node.kubelet.start_container("default/one")
        left = allocated(node, answer, 100)
        assert exit_code(left) == 0
        node.kubelet.end("default/one")  # its process has not ended yet
        await node.kubelet.admit("default/two", SHARED, 4)
        with pytest.raises(StartFailed, match="namespace set.*the start will be retried"):
            await node.kubelet.start_container("default/two")
        end(left)
        while True:
            try:
                await node.kubelet.start_container("default/two")
            except StartFailed:
                await asyncio.sleep(0.05)
            else:
                break
        assert ("40G", "100.00") in [
            limits for name, limits in namespaces(node).items() if name != "default"
        ]


async def test_serves_containers_of_version_2_after_the_driver_was_replaced() -> None:
    async with agent_node(1, MPS, driver_version=R580, further_versions=[R615]) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/before", SHARED)
        before = daemon(node)
        node.simulate("driver", R615)
        await node.until(lambda: node.status.get("driver") == R615)
        await node.until(lambda: daemon(node) not in (0, before))
        await node.offered(SHARED, 4)
        await node.kubelet.start_container("default/before")
        within, beyond = (allocated(node, answer, PER_REPLICA_MIB + more) for more in (-600, 60))
        assert (exit_code(within), exit_code(beyond)) == (0, OUT_OF_MEMORY)
        end(within, beyond)
        after = await node.kubelet.admit("default/after", SHARED)
        await node.kubelet.start_container("default/after")
        assert "/uid_0/share_" in client_environment(after)[0]["CUDA_MPS_PIPE_DIRECTORY"]


async def test_starts_no_container_of_a_namespace_behind_a_daemon_of_version_2() -> None:
    """It would find no daemon, have the whole GPU, and keep the daemon's clients out."""
    async with agent_node(1, MPS, driver_version=R615, further_versions=[R580]) as node:
        await node.offered(SHARED, 4)
        await node.kubelet.admit("default/before", SHARED)
        await node.kubelet.start_container("default/before")
        before = daemon(node)
        node.simulate("driver", R580)
        await node.until(lambda: node.status.get("driver") == R580)
        await node.until(lambda: daemon(node) not in (0, before))
        await node.offered(SHARED, 4)
        with pytest.raises(StartFailed, match="namespace of MPS.*delete the pod"):
            await node.kubelet.start_container("default/before")
        client = await container(node, "default/after", 100)
        assert exit_code(client) == 0
        end(client)


async def test_leaves_nothing_of_namespaces_behind() -> None:
    async with agent_node(1, MPS, driver_version=R615) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/client", SHARED)
        await node.kubelet.start_container("default/client")
        client = allocated(node, answer, 100)
        assert exit_code(client) == 0
        node.kubelet.end("default/client")
        node.configure({})
        await node.offered(GPU, 1)
        assert ask(client, "init") == TERMINATED
        end(client)
        nothing_is_left(node)


def test_recovers_from_kills_of_agent_and_daemon_at_any_instant() -> None:
    play(lambda: kill_at_random(number=12, seed=7, driver=R615))
