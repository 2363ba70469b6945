"""The real agent process on a made-up node: simulated driver, fake kubelet, fake API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divvy.agent.mps.processes import Process, daemons, start_time
from divvy.image.build import compile_hook
from divvy.model import canonical_json
from divvy.model.gpu_models import gpu_model
from lab.cluster.paths import REPOSITORY
from lab.cluster.simulated_driver import install_simulated_driver
from lab.fakes.api import NAMESPACE, FakeApi, fake_api
from lab.fakes.dra_kubelet import FakeDraKubelet, fake_dra_kubelet
from lab.fakes.kubelet import AGENT_POD, FakeKubelet, fake_kubelet
from lab.fakes.ports import free_port

MODEL = "A100-SXM4-40GB"
VERSION = "550.163.01"
NODE = "made-up"
_HOOK_BUILD = REPOSITORY / "build/hook"


def configuration(gpus: int, profile: Any, **more: Any) -> str:
    """Return a stack of one pool and one profile in its canonical form."""
    hardware = {"model": MODEL, "gpus": gpus, "count": 1}
    pools = {"all": {"hardware": hardware, "profile": "p"}}
    plugin = {"image": {"registry": "localhost:5000"}}
    return canonical_json({"profiles": {"p": profile}, "pools": pools, "plugin": plugin, **more})


@dataclass
class AgentNode:
    """A node with the agent at work on it."""

    folder: Path
    kubelet: FakeKubelet
    claims: FakeDraKubelet
    api: FakeApi
    gpus: int
    agent: asyncio.subprocess.Process | None = None
    began: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    patience: float = 15
    driver_root: Path | None = None

    @property
    def driver(self) -> Path:
        """Return the driver root."""
        return self.driver_root or self.folder / "driver"

    @property
    def pid(self) -> int:
        """Return the agent's process ID."""
        assert self.agent is not None
        return self.agent.pid

    @property
    def status(self) -> dict[str, Any]:
        """Return what the agent says of the node."""
        text = self.api.node["metadata"]["annotations"].get("divvy.gpu/status", "{}")
        return dict(json.loads(text))

    def configure(self, profile: Any, **more: Any) -> None:
        """Change the stack file to this profile."""
        self.api.configure(configuration(self.gpus, profile, **more))

    def simulate(self, *arguments: str) -> None:
        """Bring a fault about in the simulated driver."""
        simulate(self.driver, *arguments)

    async def start(self) -> None:
        """Start the agent."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.api.kubeconfig(self.folder / "kubeconfig")),
            "NODE_NAME": NODE,
            "NAMESPACE": NAMESPACE,
            "POD_NAME": AGENT_POD.partition("/")[2],
            "DIVVY_DRIVER_ROOT": str(self.driver),
            "DIVVY_HOST_DRIVER_ROOT": str(self.driver),
            "DIVVY_PLUGIN_FOLDER": str(self.kubelet.plugins),
            "DIVVY_POD_RESOURCES": str(self.kubelet.pod_resources),
            "DIVVY_CLAIMS_FOLDER": str(self.claims.plugins),
            "DIVVY_REGISTRY_FOLDER": str(self.claims.registry),
            "DIVVY_CDI_FOLDER": str(self.folder / "cdi"),
            "DIVVY_STATE_FOLDER": str(self.folder / "state"),
            "DIVVY_SHARE_FOLDER": str(self.folder / "tenants"),
            "DIVVY_MPS_FOLDER": str(self.folder / "mps"),
            "DIVVY_DEVICE_FOLDER": str(self.folder / "dev"),
            "DIVVY_CONTAINERD_FOLDER": str(self.folder / "containerd"),
            "DIVVY_LISTEN": "127.0.0.1",
            "DIVVY_PORT": str(self.port),
        }
        environment |= self.environment
        if "DIVVY_HOOK" not in self.environment:
            environment["DIVVY_HOOK"] = str(compile_hook(_HOOK_BUILD))
        self.began = time.perf_counter()
        with (self.folder / "agent.log").open("a") as log:
            self.agent = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "divvy.agent"), env=environment, stderr=log
            )

    async def until(self, met: Callable[[], bool], seconds: float | None = None) -> None:
        """Wait until something is true; fail with the end of the agent's output."""
        seconds = self.patience if seconds is None else seconds
        try:
            async with asyncio.timeout(seconds):
                while not met():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {self.status}\n{self.log}") from None

    async def throughout(self, seconds: float, holds: Callable[[], bool]) -> None:
        """Watch for some seconds that something stays true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert holds(), f"{self.status}\n{self.log}"
            await asyncio.sleep(0.1)

    @property
    def log(self) -> str:
        """Return the end of the agent's log."""
        return (self.folder / "agent.log").read_text()[-3000:]

    def mig_devices(self) -> str:
        """Return what nvidia-smi lists on the node."""
        program = self.driver / "usr/bin/nvidia-smi"
        done = subprocess.run([str(program), "-L"], capture_output=True, text=True, check=True)
        return done.stdout

    def smi(self, *arguments: str) -> None:
        """Run nvidia-smi on the node, as an administrator does."""
        program = self.driver / "usr/bin/nvidia-smi"
        subprocess.run([str(program), *arguments], check=True, capture_output=True)

    async def crash(self) -> None:
        """End the agent and all that it has started.

        So does a container runtime when the first process of a container ends: where the container
        has the host's PIDs, too.
        """
        assert self.agent is not None
        pids = descendants(self.agent.pid)
        family = [Process(pid, start_time(pid)) for pid in pids]
        await self.kill()
        for process in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        while any(process.runs for process in family):
            await asyncio.sleep(0.01)

    async def kill(self) -> None:
        """End the agent's process alone."""
        if self.agent is not None and self.agent.returncode is None:
            self.agent.kill()
            await self.agent.wait()

    async def offered(self, resource: str, count: int, seconds: float = 30) -> None:
        """Wait until the kubelet would hand out so many devices."""
        try:
            await self.kubelet.until(lambda: self.kubelet.allocatable(resource) == count, seconds)
        except TimeoutError:
            allocatable = self.kubelet.allocatable(resource)
            log = (self.folder / "agent.log").read_text()[-2000:]
            raise AssertionError(f"{resource}: {allocatable} instead of {count}\n{log}") from None


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family[1:]


def unmount(folder: Path) -> None:
    """Take away the file system that an agent made for the files of shares."""
    if folder.is_mount():
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def end_daemons(folder: Path) -> None:
    """End the MPS daemons below a folder, which an agent leaves when it is killed."""
    for process in daemons(folder).values():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def simulate(root: Path, *arguments: str) -> None:
    """Bring a fault about in the simulated driver below ``root``."""
    subprocess.run([str(root / "usr/bin/divvy-sim"), *arguments], check=True, capture_output=True)


@asynccontextmanager
async def simulated_driver(
    gpus: int, further_versions: Sequence[str] = (), version: str = VERSION
) -> AsyncIterator[Path]:
    """Run the driver of a node with this many GPUs; give the folder in which it is `driver`."""
    with tempfile.TemporaryDirectory(prefix="divvy-") as name:
        driver = Path(name) / "driver"
        driver.mkdir()
        models = [gpu_model(MODEL)] * gpus
        install_simulated_driver(driver, NODE, models, version, further_versions=further_versions)
        try:
            yield Path(name)
        finally:
            os.kill(int((driver / "run/divvy-simd.pid").read_text()), signal.SIGTERM)
            end_daemons(Path(name) / "state/mps")
            unmount(Path(name) / "tenants")
            for memory in (Path(name) / "mps").glob("*"):
                unmount(memory)


@asynccontextmanager
async def agent_node(
    gpus: int,
    profile: Any,
    *,
    driver_version: str = VERSION,
    further_versions: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> AsyncIterator[AgentNode]:
    """Run the agent on a node with this many GPUs."""
    async with (
        simulated_driver(gpus, further_versions, driver_version) as folder,
        fake_kubelet(folder) as kubelet,
        fake_dra_kubelet(folder) as claims,
        fake_api(NODE) as api,
    ):
        node = AgentNode(folder, kubelet, claims, api, gpus, environment=dict(environment or {}))
        node.configure(profile, **more)
        await node.start()
        try:
            yield node
        finally:
            await node.kill()
