"""The agent's process and the MPS daemons of a simulated node: what comes, fails, goes, is left."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.mps.supervision import EXCLUSIVE_PROCESS
from lab.fakes.agent import VERSION, AgentNode, agent_node, end_daemons
from lab.fakes.device_manager import AdmissionFailed, Container, StartFailed
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
    daemons_of,
    end,
    exit_code,
    modes,
    nothing_is_left,
    program,
    record,
    runs,
)

PER_REPLICA_MIB = 10240
OUT_OF_MEMORY, CONNECTION_FAILED = 2, 805
NOBODY = 65534
DEVICES_UNAVAILABLE = 46
pytestmark = [*on_simulated_node, needs_root]


async def test_runs_containers_as_clients_of_their_gpus_daemon() -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        assert modes(node) == ["Exclusive_Process"] * 2
        assert len(daemons_of(node)) == 4  # each with its server
        answer = await node.kubelet.admit("default/seen", SHARED)
        (held,) = node.kubelet.held("default/seen")[SHARED]
        gpu = held.split("::")[0]
        assert dict(answer.envs) == {
            "CUDA_MPS_PIPE_DIRECTORY": "/usr/lib/divvy/mps",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={PER_REPLICA_MIB}M",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
        }
        mounts = {mount.container_path: mount for mount in answer.mounts}
        pipes = mounts.pop("/usr/lib/divvy/mps")
        assert pipes.host_path == str(node.folder / "state/mps" / gpu / "pipe")
        assert pipes.read_only
        memory = mounts.pop("/dev/shm")
        assert memory.host_path == str(node.folder / "mps" / gpu)
        assert not memory.read_only
        assert mounts == {}
        within = await container(node, "default/within", 10000)
        assert exit_code(within) == 0
        beyond = await container(node, "default/beyond", 10300)
        outside = program(node, 1, {})
        assert (exit_code(beyond), exit_code(outside)) == (2, 46)
        end(within, beyond, outside)


async def test_starts_daemons_for_all_users_and_without_partitions_that_clients_choose() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        command = Path(f"/proc/{daemon(node)}/cmdline").read_text().split("\0")
        assert command[1:] == ["-f", "-multiuser-server", ""]


async def test_gives_daemons_an_input_that_does_not_end() -> None:
    """In the foreground they read commands there, and would end with it."""
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        await node.kill()
        # As the daemon does, which has it open for writing, too: so no read finds its end.
        handle = os.open(f"/proc/{daemon(node)}/fd/0", os.O_RDONLY | os.O_NONBLOCK)
        with pytest.raises(BlockingIOError):
            os.read(handle, 1)
        os.close(handle)


async def test_shares_a_bounded_memory_between_clients_and_daemon() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/seen", SHARED)
        mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
        memory = Path(mounts["/dev/shm"])
        assert memory.is_mount()
        status = os.statvfs(memory)
        assert (status.f_blocks * status.f_frsize, status.f_files) == (1 << 30, 16384)
        assert node.agent is not None
        pids = (daemon(node), node.agent.pid)
        seen = [Path(f"/proc/{pid}/root/dev/shm").stat() for pid in pids]
        assert [status.st_dev == memory.stat().st_dev for status in seen] == [True, False]
        pipes = next((node.folder / "state/mps").glob("*/pipe"))
        bare = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
        own = program(node, 1, bare)  # as in a pod whose own volume lies above the daemon's
        assert exit_code(own) == CONNECTION_FAILED
        end(own)
        rest = memory / "rest"
        with rest.open("wb") as file, pytest.raises(OSError, match="No space left"):
            os.posix_fallocate(file.fileno(), 0, (1 << 30) + 4096)
        with rest.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 30)
        full = program(node, 1, bare, str(memory))
        assert exit_code(full) == CONNECTION_FAILED
        end(full)
        rest.unlink()
        room = program(node, 1, bare, str(memory))
        assert exit_code(room) == 0
        end(room)


async def test_removes_what_pods_left_in_memory_before_another_container_starts() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        first = await node.kubelet.admit("default/first", SHARED)
        await node.kubelet.start_container("default/first")
        memory = Path({m.container_path: m.host_path for m in first.mounts}["/dev/shm"])
        (memory / "left").mkdir()
        (memory / "left/torch_1").write_text("secret")
        (memory / "left2").symlink_to("/etc/hostname")
        beside = await container(node, "default/beside", 1)
        assert exit_code(beside) == 0
        assert (memory / "left").is_dir(), "somebody holds a share"
        end(beside)
        for pod in ("default/first", "default/beside"):
            node.kubelet.end(pod)
        later = await container(node, "default/later", 1)
        assert not list(memory.glob("left*"))
        assert Path("/etc/hostname").exists()
        assert exit_code(later) == 0  # what the daemon needs there is still there
        end(later)


async def test_reports_a_memory_of_clients_that_is_almost_full() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/filler", SHARED)
        memory = Path({m.container_path: m.host_path for m in answer.mounts}["/dev/shm"])
        await node.until(lambda: node.status.get("state") == "Ready")
        with (memory / "rest").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, int(0.95 * (1 << 30)))
        await node.until(lambda: f"{memory}, is 90 % full" in node.status["reason"], 30)
        assert node.status["state"] == "Degraded"
        (memory / "rest").unlink()
        await node.until(lambda: node.status["state"] == "Ready", 30)


async def test_gives_a_container_of_two_replicas_both_of_one_gpu() -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        answer = await node.kubelet.admit("default/two", SHARED, 2)
        held = node.kubelet.held("default/two")[SHARED]
        assert len({device.split("::")[0] for device in held}) == 1
        assert answer.envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
        limit = answer.envs["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"]
        assert limit == f"0={2 * PER_REPLICA_MIB}M"
        with pytest.raises(AdmissionFailed, match="one GPU's MPS daemon"):
            await node.kubelet.admit("default/five", SHARED, 5)


async def test_holds_each_container_of_a_pod_to_its_own_replicas() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        containers = (Container("small", {SHARED: 1}), Container("large", {SHARED: 2}))
        answers = await node.kubelet.admit_pod("default/both", containers)
        for answer, replicas in zip(answers, (1, 2), strict=True):
            limit = replicas * PER_REPLICA_MIB
            within, beyond = (allocated(node, answer, limit + more) for more in (-600, 60))
            assert (exit_code(within), exit_code(beyond)) == (0, 2)
            end(within, beyond)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["dead", "wedged"])
async def test_withdraws_the_shares_of_a_failing_daemon_within_a_second(
    how: signal.Signals,
) -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        before = daemon(node)
        os.kill(before, how)
        failed = time.monotonic()
        await node.offered(SHARED, 4)
        # The kubelet's fake looks now and then, on a machine that has other things to do.
        assert time.monotonic() - failed < 2
        if how == signal.SIGSTOP:
            await node.until(lambda: "does not answer" in node.status["reason"])
            os.kill(before, signal.SIGCONT)
            await node.offered(SHARED, 8)
            assert daemon(node) == before
        else:
            await node.offered(SHARED, 8)
            assert daemon(node) != before
        assert modes(node) == ["Exclusive_Process"] * 2


async def test_offers_shares_steadily_if_every_answer_is_slow() -> None:
    """As on a node whose tenants take all processors: only that it gets slow withdraws them."""
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        delay_answers(node, 0.8)
        endpoint = node.kubelet.endpoints[SHARED]
        await asyncio.sleep(4)
        lists = endpoint.lists
        await node.throughout(5, lambda: node.kubelet.allocatable(SHARED) == 4)
        assert endpoint.lists == lists


async def test_starts_no_container_while_its_daemon_is_away() -> None:
    """It would compute outside of MPS, without limits, and shut the next daemon out."""
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        await node.kubelet.admit("default/early", SHARED)
        os.kill(daemon(node), signal.SIGKILL)
        await node.offered(SHARED, 0)
        with pytest.raises(StartFailed, match="no MPS daemon.*the start will be retried"):
            await node.kubelet.start_container("default/early")
        await node.offered(SHARED, 4)
        await node.kubelet.start_container("default/early")


async def test_starts_containers_after_a_boot_behind_their_daemon() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/again", SHARED)
        await node.kill()
        end_daemons(node.folder / "state/mps")
        node.smi("-c", "DEFAULT")
        start_slowly(node)
        await node.start()
        while True:
            try:
                await node.kubelet.start_container("default/again")
            except StartFailed:
                await asyncio.sleep(0.02)
            else:
                break
        beyond = allocated(node, answer, PER_REPLICA_MIB + 60)
        assert exit_code(beyond) == OUT_OF_MEMORY
        end(beyond)


def start_slowly(node: AgentNode) -> None:
    """Have daemons of a node start after a second."""
    program = node.driver / "usr/bin/nvidia-cuda-mps-control"
    real = program.rename(program.with_name("real-control"))
    program.write_text(f'#!/bin/sh\n[ $# = 0 ] || sleep 1\nexec {real} "$@"\n')
    program.chmod(0o755)


async def test_replaces_a_daemon_that_stays_wedged() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        before = daemon(node)
        os.kill(before, signal.SIGSTOP)
        await node.offered(SHARED, 0)
        await node.offered(SHARED, 4)
        assert daemon(node) != before
        assert not runs(before)


async def test_leaves_clients_alone_when_only_the_agents_process_is_killed() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        before = daemon(node)
        await node.kill()
        assert runs(before)
        await node.start()
        await node.offered(SHARED, 4)
        assert daemon(node) == before
        assert ask(client, "init") == 0
        end(client)


@pytest.mark.parametrize("driver", [VERSION, "615.71.09"])
async def test_serves_again_after_a_crash_once_the_clients_before_it_have_ended(
    driver: str,
) -> None:
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        before = daemon(node)
        await node.crash()
        assert not runs(before)
        await node.start()
        reason = "GPU 0: its MPS server does not start; does an earlier client still run?"
        await node.until(lambda: str(node.status.get("reason")).startswith(reason))
        assert ask(client, "init") != 0
        end(client)
        await node.until(lambda: node.status.get("state") == "Ready", 60)
        later = await container(node, "default/later", 100)
        assert exit_code(later) == 0
        end(later)


async def start_without_mps(node: AgentNode) -> None:
    """Start the agent of two GPUs again, which a stack file without MPS makes whole."""
    node.configure({})
    await node.start()
    await node.offered(GPU, 2)
    await node.until(lambda: modes(node) == ["Default"] * 2)


async def test_repairs_what_a_killed_agent_left() -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        await node.kill()
        await start_without_mps(node)
        nothing_is_left(node)


@pytest.mark.parametrize("lost", ["record", "state", "record and daemon"])
async def test_repairs_what_was_left_without_a_record(lost: str) -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        await node.kill()
        if lost == "record and daemon":
            end_daemons(node.folder / "state/mps")
        (node.folder / "state/mps.json").unlink()
        if lost == "state":
            shutil.rmtree(node.folder / "state/mps")
        await start_without_mps(node)
        nothing_is_left(node)


async def test_adopts_a_daemon_without_a_record_and_starts_no_second() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        before = daemon(node)
        await node.kill()
        kept = node.folder / "state/mps.json"
        kept.write_text("{")
        await node.start()
        # The kubelet's list is still that of the agent before.
        await node.until(lambda: kept.read_text() != "{")
        await node.offered(SHARED, 4)
        assert daemon(node) == before
        assert ask(client, "init") == 0
        end(client)


@pytest.mark.parametrize("profile", [{}, {"timeSlicing": {"replicas": 4}}, {"mig": {"1g.5gb": 7}}])
async def test_restores_the_compute_mode_before_another_offer(
    profile: dict[str, Any],
) -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        end(client)
        node.kubelet.end("default/client")
        node.configure(profile)
        resource = {"timeSlicing": SHARED, "mig": "nvidia.com/mig-1g.5gb"}.get(
            next(iter(profile), ""), GPU
        )
        count = 7 if "mig" in profile else 4 if profile else 1
        if resource == SHARED:
            await node.offered(SHARED, 0)
        await node.offered(resource, count)
        assert modes(node) == ["Default"]
        assert record(node) == {}
        assert daemons_of(node) == []


async def test_keeps_a_daemon_until_its_last_client_is_gone() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        client = await container(node, "default/client", 100)
        assert exit_code(client) == 0
        node.configure({"timeSlicing": {"replicas": 4}})
        await node.until(lambda: node.status["state"] == "Waiting")
        assert "default/client" in node.status["reason"]
        assert modes(node) == ["Exclusive_Process"]
        assert ask(client, "init") == 0
        end(client)
        node.kubelet.end("default/client")
        await node.offered(SHARED, 4)
        assert modes(node) == ["Default"]


async def test_starts_no_daemon_that_shuts_out_another_holder_of_the_gpu() -> None:
    async with agent_node(1, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 4)
        await node.kubelet.admit("default/before", SHARED)
        node.configure(MPS)
        await node.until(lambda: node.status["state"] == "Waiting")
        assert modes(node) == ["Default"]
        assert program_result(node) == 0
        node.kubelet.end("default/before")
        await node.offered(SHARED, 4)
        assert modes(node) == ["Exclusive_Process"]


def program_result(node: AgentNode) -> int:
    process = program(node, 1, {})
    result = exit_code(process)
    end(process)
    return result


async def test_ends_daemons_and_restores_the_mode_when_stopped() -> None:
    async with agent_node(2, MPS) as node:
        await node.offered(SHARED, 8)
        assert node.agent is not None
        node.agent.terminate()
        await node.agent.wait()
        assert modes(node) == ["Default"] * 2
        assert [gpu["pid"] for gpu in record(node).values()] == [0, 0]
        assert daemons_of(node) == []
        # Containers have its folders: they go with the profile, whenever that is.
        await start_without_mps(node)
        nothing_is_left(node)


async def test_restores_the_mode_when_stopped_with_a_socket_that_cannot_be_removed() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        place = node.kubelet.plugins / "divvy-nvidia.com_gpu.shared.sock"
        place.rename(place.with_suffix(".away"))
        place.mkdir()
        assert node.agent is not None
        node.agent.terminate()
        assert await node.agent.wait() == 0
        assert modes(node) == ["Default"]
        assert daemons_of(node) == []


async def test_restores_a_compute_mode_that_somebody_changed() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        node.smi("-c", "DEFAULT")
        await node.until(lambda: modes(node) == ["Exclusive_Process"])


async def test_serves_one_gpu_by_mps_beside_one_in_time_slices() -> None:
    rules = [
        {"devices": [0], "mps": {"replicas": 3, "resourceName": "gpu.mps"}},
        {"timeSlicing": {"replicas": 2}},
    ]
    async with agent_node(2, rules) as node:
        await node.offered("nvidia.com/gpu.mps", 3)
        await node.offered(SHARED, 2)
        assert modes(node) == ["Exclusive_Process", "Default"]


async def test_withholds_mps_shares_if_the_driver_lacks_the_program() -> None:
    async with agent_node(1, {}) as node:
        await node.offered(GPU, 1)
        (node.driver / "usr/bin/nvidia-cuda-mps-control").unlink()
        node.configure(MPS)
        await node.until(lambda: "nvidia-cuda-mps-control" in node.status.get("reason", ""))
        assert node.kubelet.allocatable(SHARED) == 0
        assert node.status["state"] == "Degraded"
        node.configure({})
        await node.offered(GPU, 1)
        assert modes(node) == ["Default"]


async def test_limits_a_client_that_drops_its_own_limit() -> None:
    alone = {"mps": {"replicas": 4, "failRequestsGreaterThanOne": True}}
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        pipes = next((node.folder / "state/mps").glob("*/pipe"))
        bare = {"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}
        memory = str(node.folder / "mps" / pipes.parent.name)
        free, first = (program(node, mib, bare, memory) for mib in (20000, 1))
        assert (exit_code(free), exit_code(first)) == (0, 0)
        end(free)
        # The daemon's default is that of its next server alone: the one that runs is told, too.
        node.configure(alone)
        await node.until(lambda: limited(node, bare, memory))
        end(first)


async def test_keeps_the_daemons_own_limit_when_the_profile_goes() -> None:
    alone = {"mps": {"replicas": 4, "failRequestsGreaterThanOne": True}}
    async with agent_node(1, alone) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        environment, memory = client_environment(answer)
        bare = {"CUDA_MPS_PIPE_DIRECTORY": environment["CUDA_MPS_PIPE_DIRECTORY"]}
        assert memory is not None
        await node.kubelet.start_container("default/one")
        assert limited(node, bare, memory)
        node.configure({})
        await node.until(lambda: "held by default/one" in str(node.status.get("reason")))
        await node.throughout(2, lambda: limited(node, bare, memory))


@pytest.mark.parametrize("driver", [VERSION, "615.71.09"])
async def test_keeps_out_a_program_that_looks_elsewhere(driver: str) -> None:
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        await node.kubelet.start_container("default/one")
        elsewhere = {"CUDA_MPS_PIPE_DIRECTORY": "/nonexistent"}
        early = program(node, 20000, elsewhere)
        assert exit_code(early) == DEVICES_UNAVAILABLE
        end(early)
        client = allocated(node, answer, 100)
        assert exit_code(client) == 0
        late = program(node, 100, elsewhere)
        assert exit_code(late) == DEVICES_UNAVAILABLE
        end(client, late)
        # Where the server dies the agent starts another, whoever comes next.
        (server,) = {*daemons_of(node)} - {daemon(node)}
        os.kill(server, signal.SIGKILL)
        await node.until(lambda: len({*daemons_of(node)} - {server}) == 2)
        last = program(node, 100, elsewhere)
        assert exit_code(last) == DEVICES_UNAVAILABLE
        end(last)


async def test_serves_containers_of_any_user_and_namespace() -> None:
    async with agent_node(1, MPS) as node:
        await node.offered(SHARED, 4)
        node.folder.chmod(0o755)  # a container has the sockets mounted, and no folder above
        first = await container(node, "team-a/root", 100)
        answer = await node.kubelet.admit("team-b/refused", SHARED)
        second = allocated(node, answer, 100, user=NOBODY)
        assert (exit_code(first), exit_code(second)) == (0, 0)
        end(first, second)


async def test_serves_containers_after_the_driver_was_replaced() -> None:
    async with agent_node(1, MPS, further_versions=["580.95.05"]) as node:
        await node.offered(SHARED, 4)
        before = daemon(node)
        node.simulate("driver", "580.95.05")
        await node.until(lambda: node.status.get("driver") == "580.95.05")
        await node.until(lambda: daemon(node) != before)
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/after", SHARED)
        await node.kubelet.start_container("default/after")
        after = allocated(node, answer, 100)
        assert exit_code(after) == 0
        end(after)


@pytest.mark.parametrize("code", [0, 1])
async def test_withdraws_shares_whose_limit_the_daemon_refuses(
    code: int,
) -> None:
    async with agent_node(1, {}) as node:
        await node.offered(GPU, 1)
        program = node.driver / "usr/bin/nvidia-cuda-mps-control"
        real = program.rename(program.with_name("real-control"))
        program.write_text(
            f"""#!/bin/sh
                [ $# = 0 ] || exec {real} "$@"
                read -r line
                case "$line" in
                set_default_device_pinned*) echo Invalid device memory limit; exit {code} ;;
                esac
                echo "$line" | {real}
                """
        )
        program.chmod(0o755)
        node.configure(MPS)
        refused = "set_default_device_pinned_mem_limit: Invalid device memory limit"
        await node.until(lambda: refused in node.status.get("reason", ""))
        assert node.status["state"] == "Degraded"
        before = daemon(node)
        real.rename(program)
        await node.offered(SHARED, 4)
        assert daemon(node) == before


def delay_answers(node: AgentNode, seconds: float) -> None:
    """Have the program by which the agent asks take its time."""
    program = node.driver / "usr/bin/nvidia-cuda-mps-control"
    kept = program.with_name("kept")
    kept.write_bytes(program.read_bytes())
    kept.chmod(0o755)
    program.unlink()
    program.write_text(f'#!/bin/sh\nsleep {seconds}\nexec {kept} "$@"\n')
    program.chmod(0o755)


def limited(node: AgentNode, environment: dict[str, str], memory: str) -> bool:
    process = program(node, 20000, environment, memory)
    result = exit_code(process)
    end(process)
    return result == 2


def test_recovers_from_kills_of_agent_and_daemon_at_any_instant() -> None:
    play(lambda: kill_at_random(number=12, seed=7))


def test_sets_the_exclusive_process_mode() -> None:
    assert EXCLUSIVE_PROCESS == 3
