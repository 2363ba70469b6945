"""Where the agent ends clients of MPS, their daemon terminates them first.

A client that is killed with work in flight fails its neighbours and wedges their server, as users
and NVIDIA report of drivers before 625; the simulated driver does so after `fault mps-wedge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from lab.driver_clients.control_groups import hierarchy, removed
from lab.driver_clients.driver_root import eventually
from lab.fakes.agent import VERSION, AgentNode, agent_node
from lab.fakes.device_manager import StartFailed
from lab.fakes.simulator import needs_root, on_simulated_node
from tests.agent.mps.mps_node import (
    GPU,
    MPS,
    SHARED,
    allocated,
    ask,
    client_environment,
    container,
    end,
    exit_code,
)

TERMINATED = 810
# MPS is version 2 with the one, version 3 with the other.
both_versions = pytest.mark.parametrize("driver", [VERSION, "615.71.09"])
ENFORCED: dict[str, Any] = {
    "mps": {"replicas": 4, "memoryLimit": {"limit": "auto", "action": "enforce"}}
}
POD_UID, CONTAINER_ID = "0a1b2c3d-0000-4000-8000-000000000001", "ab" * 32
WORKING = """
import sys
from pathlib import Path
from lab.driver_clients.cuda import Cuda
from lab.driver_clients.sleeper import Sleeper
cuda = Cuda(Path(sys.argv[1])).init()
cuda.context()
Sleeper(cuda).start(600_000_000_000)
print("0", flush=True)
sys.stdin.read()
"""
# Two processes, each within MPS' limit and together above their container's, with work in flight.
GREEDY = """
import os, sys
from pathlib import Path
from lab.driver_clients.cuda import Cuda
from lab.driver_clients.sleeper import Sleeper
Path(sys.argv[2], "cgroup.procs").write_text("0")
os.fork()
cuda = Cuda(Path(sys.argv[1])).init()
cuda.context()
cuda.allocate(6 << 30)
Sleeper(cuda).start(600_000_000_000)
os.write(1, b"0\\n")  # at once: two processes share it
sys.stdin.read()
"""
pytestmark = [*on_simulated_node, needs_root]


@both_versions
@pytest.mark.parametrize("how", ["the agent is stopped", "the profile goes"])
async def test_terminates_clients_before_their_daemon_ends(how: str, driver: str) -> None:
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        assert node.agent is not None
        if how == "the agent is stopped":
            node.agent.terminate()
            await node.agent.wait()
        else:
            # The kubelet knows of no client any more, and its program runs on.
            node.kubelet.end("default/client")
            node.configure({})
            await node.offered(GPU, 1)
        assert ask(client, "init") == TERMINATED
        end(client)


@contextlib.contextmanager
def container_group() -> Iterator[Path]:
    """Give the control group of a pod's container, as a kubelet names it."""
    pods = hierarchy() / f"kubepods-of-{os.getpid()}"
    group = pods / f"pod{POD_UID}" / CONTAINER_ID
    group.mkdir(parents=True)
    try:
        yield group
    finally:
        assert eventually(lambda: all(map(removed, (group, group.parent, pods))))


@both_versions
async def test_ends_a_container_above_its_limit_without_harm_to_its_neighbours(
    tmp_path: Path, driver: str
) -> None:
    (tmp_path / f"greedy_default_main-{CONTAINER_ID}.log").touch()
    with container_group() as group:
        environment = {"DIVVY_CONTAINER_LOGS": str(tmp_path)}
        async with agent_node(1, ENFORCED, environment=environment, driver_version=driver) as node:
            await node.offered(SHARED, 4)
            node.simulate("fault", "mps-wedge", "0")
            neighbour = await container(node, "default/neighbour", 100)
            assert exit_code(neighbour) == 0
            answer = await node.kubelet.admit("default/greedy", SHARED)
            await node.kubelet.start_container("default/greedy")
            processes = started(node, answer, GREEDY, str(group))
            assert [exit_code(processes) for _ in range(2)] == [0, 0]
            await node.until(lambda: not (group / "cgroup.procs").read_text(), 20)
            assert ask(neighbour, "init") == 0
            late = await container(node, "default/late", 100)
            assert exit_code(late) == 0
            end(neighbour, late, processes)


async def started_by_kubelet(node: AgentNode, pod: str) -> None:
    """Start a container, again for as long as the plugin says that it is too early."""
    deadline = monotonic() + 30
    while True:
        try:
            await node.kubelet.start_container(pod)
        except StartFailed as refused:
            if "the start will be retried" not in str(refused) or monotonic() > deadline:
                raise
            await asyncio.sleep(1)
        else:
            return


@both_versions
async def test_starts_no_container_behind_the_wedged_server_of_one_that_was_killed(
    driver: str,
) -> None:
    """The kubelet kills, and no plugin hears of it before."""
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, 4)
        node.simulate("fault", "mps-wedge", "0")
        first = await node.kubelet.admit("default/killed", SHARED)
        await node.kubelet.start_container("default/killed")
        killed = started(node, first, WORKING)
        assert exit_code(killed) == 0
        end(killed)
        node.kubelet.end("default/killed")
        answer = await node.kubelet.admit("default/next", SHARED)
        await started_by_kubelet(node, "default/next")
        following = allocated(node, answer, 100)
        first_answer = asyncio.to_thread(exit_code, following)
        try:
            assert await asyncio.wait_for(first_answer, 10) == 0
        finally:
            end(following)


@both_versions
async def test_keeps_the_server_of_a_neighbour_at_the_start_of_a_container(driver: str) -> None:
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, 4)
        neighbour = await container(node, "default/neighbour", 100)
        assert exit_code(neighbour) == 0
        await node.kubelet.admit("default/next", SHARED)
        await node.kubelet.start_container("default/next")
        assert ask(neighbour, "init") == 0
        end(neighbour)


def started(node: AgentNode, answer: Any, script: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a container's program with what Allocate answered."""
    library = node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    environment, memory = client_environment(answer)
    mounted = 'mount --bind "$0" /dev/shm && exec "$@"'
    return subprocess.Popen(
        [
            *("unshare", "--mount", "sh", "-c", mounted, str(memory)),
            *(sys.executable, "-c", script, str(library), *arguments),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
