"""The agent's process where the driver itself limits memory, and where it cannot."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.inject.limiter import LIBRARIES
from lab.driver_clients.control_groups import control_group, hierarchy, start_within
from lab.driver_clients.driver_root import HOLDER
from lab.fakes.agent import AgentNode, agent_node, unmount
from lab.fakes.device_manager import Container, StartFailed
from lab.fakes.simulator import needs_root, on_simulated_node
from tests.agent.mps.mps_node import client_environment, container, end, exit_code

SHARED, WHOLE = "nvidia.com/gpu.shared", "nvidia.com/gpu"
R615, R580 = "615.71.09", "580.95.05"
PER_REPLICA_MIB = 10240
LIMITS = "/usr/lib/divvy/share/limits"
pytestmark = [*on_simulated_node, needs_root]


def profile(enforcement: str, way: str = "timeSlicing") -> dict[str, Any]:
    limit = {"limit": "auto", "action": "prevent", "enforcement": enforcement}
    return {way: {"replicas": 4, "memoryLimit": limit}}


def of_version_2(folder: Path) -> dict[str, str]:
    """Give the agent a folder that looks like version 2 of the control groups."""
    (folder / "cgroup.controllers").write_text("cpu memory dmem\n")
    return {"DIVVY_CGROUP_FOLDER": str(folder)}


def with_limiter(folder: Path) -> dict[str, str]:
    for name in LIBRARIES:
        (folder / name).touch()
    return {"DIVVY_LIMITER": str(folder)}


def described(node: AgentNode) -> dict[str, Any]:
    file = node.folder / "cdi/divvy.gpu-driver-limited-gpu.json"
    return dict(json.loads(file.read_text()))


def call_hook(node: AgentNode, answer: Any, pid: int) -> subprocess.CompletedProcess[str]:
    """Call the createRuntime hook as a runtime does for a container with this answer."""
    (hook,) = (
        hook
        for hook in described(node)["containerEdits"]["hooks"]
        if hook["hookName"] == "createRuntime"
    )
    bundle = node.folder / "bundle"
    bundle.mkdir(exist_ok=True)
    mounts = [
        {"destination": mount.container_path, "source": mount.host_path} for mount in answer.mounts
    ]
    specification = {"root": {"path": "rootfs"}, "process": {"env": []}, "mounts": mounts}
    (bundle / "config.json").write_text(json.dumps(specification))
    return subprocess.run(
        [hook["path"], *hook["args"][1:]],
        input=json.dumps({"bundle": str(bundle), "pid": pid}),
        capture_output=True,
        text=True,
        check=False,
    )


def limited_result(node: AgentNode, answer: Any, waiting: subprocess.Popen[str]) -> str:
    """Call the hook for a program that waits, let it run, and return its first line."""
    called = call_hook(node, answer, waiting.pid)
    assert called.returncode == 0, called.stderr
    assert waiting.stdin is not None
    assert waiting.stdout is not None
    waiting.stdin.write("go\n")
    waiting.stdin.flush()
    return waiting.stdout.readline()


@pytest.mark.parametrize(("version", "by_driver"), [(R615, True), (R580, False)])
@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
async def test_enforces_auto_by_the_strongest_rung_of_the_node(
    tmp_path: Path, version: str, by_driver: bool, way: str
) -> None:
    environment = {**of_version_2(tmp_path), **with_limiter(tmp_path)}
    async with agent_node(
        1, profile("auto", way), driver_version=version, environment=environment
    ) as node:
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status.get("state") == "Ready")
        expected = "driver" if by_driver else None
        await node.until(lambda: node.status["gpus"][0].get("enforcement") == expected)
        answer = await node.kubelet.admit("default/one", SHARED)
        (name,) = (device.name for device in answer.cdi_devices)
        assert name.startswith("divvy.gpu/driver-limited-gpu=GPU-") is by_driver
        assert name.startswith("divvy.gpu/limited-gpu-") is not by_driver
        places = {mount.container_path for mount in answer.mounts}
        of_mps = {"/dev/shm", answer.envs.get("CUDA_MPS_PIPE_DIRECTORY")} & places
        assert len(of_mps) == (2 if way == "mps" else 0)
        assert (places - of_mps == {LIMITS}) is by_driver
        await node.kubelet.start_container("default/one")


@pytest.mark.parametrize(
    ("version", "has_groups", "words"),
    [
        (R580, True, "driver 580.95.05 limits no memory; 615 or newer does"),
        (R615, False, "this node has version 1"),
    ],
)
@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
async def test_withdraws_shares_that_the_nodes_driver_cannot_limit(
    tmp_path: Path, version: str, has_groups: bool, words: str, way: str
) -> None:
    environment = {"DIVVY_CGROUP_FOLDER": str(tmp_path)}
    if has_groups:
        environment = of_version_2(tmp_path)
    async with agent_node(
        1, profile("driver", way), driver_version=version, environment=environment
    ) as node:
        await node.until(lambda: words in node.status.get("reason", ""))
        assert node.status["state"] == "Degraded"
        assert node.status["resources"] == {SHARED: 0}
        await node.throughout(1, lambda: node.kubelet.allocatable(SHARED) == 0)
        node.configure({"timeSlicing": {"replicas": 4}})
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status.get("state") == "Ready")


async def test_limits_a_container_before_its_program_starts() -> None:
    environment = {"DIVVY_CGROUP_FOLDER": str(hierarchy())}
    with control_group() as group:
        async with agent_node(
            1, profile("driver"), driver_version=R615, environment=environment
        ) as node:
            await node.offered(SHARED, 4)
            answer = await node.kubelet.admit("default/one", SHARED)
            await node.kubelet.start_container("default/one")
            library = str(node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
            hold = (sys.executable, "-S", str(HOLDER), library)
            results = []
            for mib in (PER_REPLICA_MIB + 1, PER_REPLICA_MIB):
                held = start_within(group / "below", *hold, str(mib), wait=True)
                results.append(limited_result(node, answer, held))
                held.kill()
                held.communicate()
            assert results == ["2\n", "0\n"]


async def test_limits_the_mps_clients_of_a_container_together() -> None:
    """MPS limits each process alone; the driver counts all that are in the container's group."""
    environment = {"DIVVY_CGROUP_FOLDER": str(hierarchy())}
    with control_group() as group:
        async with agent_node(
            1, profile("driver", "mps"), driver_version=R615, environment=environment
        ) as node:
            await node.offered(SHARED, 4)
            answer = await node.kubelet.admit("default/one", SHARED)
            await node.kubelet.start_container("default/one")
            variables, memory = client_environment(answer)
            library = str(node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
            within = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"']
            client = ["env", *(f"{name}={value}" for name, value in variables.items())]
            client += [*within, str(memory), sys.executable, "-S", str(HOLDER), library]
            held, results = [], []
            for mib in (6000, 6000, 4000, PER_REPLICA_MIB + 1):
                process = start_within(group / "below", *client, str(mib), wait=True)
                held.append(process)
                results.append(limited_result(node, answer, process))
            neighbour = await container(node, "default/two", 6000)
            assert (results, exit_code(neighbour)) == (["0\n", "2\n", "0\n", "2\n"], 0)
            end(neighbour, *held)


@pytest.mark.parametrize(("before", "after"), [(R580, R615), (R615, R580)])
async def test_keeps_a_containers_files_over_a_boot_with_another_driver(
    tmp_path: Path, before: str, after: str
) -> None:
    """The kubelet starts it by what Allocate answered: a runtime would make folders of files."""
    environment = {**of_version_2(tmp_path), **with_limiter(tmp_path)}
    async with agent_node(
        1,
        profile("auto"),
        driver_version=before,
        further_versions=[after],
        environment=environment,
    ) as node:
        await node.offered(SHARED, 4)
        answer = await node.kubelet.admit("default/one", SHARED)
        files = [Path(mount.host_path) for mount in answer.mounts]
        laid = [file for file in files if file.is_relative_to(node.folder / "tenants")]
        await node.kubelet.start_container("default/one")
        await node.kill()
        unmount(node.folder / "tenants")
        shutil.rmtree(node.folder / "cdi")
        node.simulate("driver", after)
        await node.start()
        by_driver = "driver" if after == R615 else None
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.until(lambda: node.status["gpus"][0].get("enforcement") == by_driver)
        await node.kubelet.start_container("default/one")
        assert all(file.is_file() for file in laid)
        assert laid


async def test_limits_several_replicas_to_their_sum() -> None:
    environment = {"DIVVY_CGROUP_FOLDER": str(hierarchy())}
    rule = profile("driver")
    rule["timeSlicing"]["failRequestsGreaterThanOne"] = False
    with control_group() as group:
        async with agent_node(1, rule, driver_version=R615, environment=environment) as node:
            await node.offered(SHARED, 4)
            answer = await node.kubelet.admit("default/two", SHARED, 2)
            waiting = start_within(group / "below", "true", wait=True)
            assert call_hook(node, answer, waiting.pid).returncode == 0
            program = str(node.driver / "usr/bin/nvidia-smi")
            get = [program, "memory-limits", "--get", "-n", str(group / "below"), "-i", "0"]
            limits = subprocess.run(get, capture_output=True, text=True, check=True).stdout
            assert f"hard limit: {2 * PER_REPLICA_MIB} MiB" in limits
            waiting.kill()
            waiting.communicate()


async def test_refuses_a_second_gpu_beside_a_driver_limited_share() -> None:
    environment = {"DIVVY_CGROUP_FOLDER": str(hierarchy())}
    rules = [{"devices": [0], **profile("driver")}, {"devices": [1]}]
    async with agent_node(2, rules, driver_version=R615, environment=environment) as node:
        await node.offered(SHARED, 4)
        await node.offered(WHOLE, 1)
        both = Container("main", {SHARED: 1, WHOLE: 1})
        await node.kubelet.admit_pod("default/both", (both, Container("beside", {SHARED: 1})))
        with pytest.raises(StartFailed, match="whose limits may take the place"):
            await node.kubelet.start_container("default/both")
        await node.kubelet.start_container("default/both", "beside")


async def test_restarts_a_driver_limited_container_by_its_hook() -> None:
    """Its specification stays, and an older driver keeps it from starting without its limit."""
    environment = {"DIVVY_CGROUP_FOLDER": str(hierarchy())}
    with control_group() as group:
        async with agent_node(
            1,
            profile("auto"),
            driver_version=R615,
            further_versions=[R580],
            environment=environment,
        ) as node:
            await node.offered(SHARED, 4)
            answer = await node.kubelet.admit("default/one", SHARED)
            waiting = start_within(group / "below", "true", wait=True)
            assert call_hook(node, answer, waiting.pid).returncode == 0
            node.simulate("driver", R580)
            await node.until(lambda: node.status.get("driver") == R580)
            await node.until(lambda: "enforcement" not in node.status["gpus"][0])
            (name,) = (device.name for device in answer.cdi_devices)
            devices = [device["name"] for device in described(node)["devices"]]
            assert name.partition("=")[2] in devices
            called = call_hook(node, answer, waiting.pid)
            assert called.returncode == 1
            assert "the driver does not limit the memory" in called.stderr
            node.simulate("driver", R615)
            await node.until(lambda: node.status["gpus"][0].get("enforcement") == "driver")
            assert call_hook(node, answer, waiting.pid).returncode == 0
            waiting.kill()
            waiting.communicate()
