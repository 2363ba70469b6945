"""A made-up node's MPS daemons, compute modes and clients, as a test sees and starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.driver_clients.driver_root import HOLDER
from lab.fakes.agent import AgentNode

SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"
MPS: dict[str, Any] = {"mps": {"replicas": 4}}


def modes(node: AgentNode) -> list[str]:
    program = str(node.driver / "usr/bin/nvidia-smi")
    query = [program, "--query-gpu=compute_mode", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()


def record(node: AgentNode) -> dict[str, Any]:
    try:
        return dict(json.loads((node.folder / "state/mps.json").read_text())["gpus"])
    except FileNotFoundError:
        return {}


def daemon(node: AgentNode, at: int = 0) -> int:
    """Return the PID of a GPU's daemon, 0 without one."""
    gpus = sorted(record(node).items())
    return int(gpus[at][1]["pid"]) if len(gpus) > at else 0


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def daemons_of(node: AgentNode) -> list[int]:
    """Return every control daemon and server that uses this node's folders."""
    indexes = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            program = str((folder / "exe").readlink())
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        # Without an option it is the prompt by which the agent asks.
        if program == str(node.driver / "usr/bin/nvidia-cuda-mps-control") and b"-f" in arguments:
            indexes.append(int(folder.name))
    return indexes


async def container(node: AgentNode, pod: str, mib: int, count: int = 1) -> subprocess.Popen[str]:
    """Admit a pod and start its program with the environment and mounts that it was given."""
    answer = await node.kubelet.admit(pod, SHARED, count)
    await node.kubelet.start_container(pod)
    return allocated(node, answer, mib)


def allocated(
    node: AgentNode, answer: Any, mib: int, user: int | None = None
) -> subprocess.Popen[str]:
    """Start a container's program with what Allocate answered."""
    return program(node, mib, *client_environment(answer), user)


def client_environment(answer: Any) -> tuple[dict[str, str], str | None]:
    """Return the environment of a container on this host, and its /dev/shm."""
    environment = dict(answer.envs)
    mounts = {mount.container_path: mount.host_path for mount in answer.mounts}
    environment["CUDA_MPS_PIPE_DIRECTORY"] = mounts[environment["CUDA_MPS_PIPE_DIRECTORY"]]
    return environment, mounts.get("/dev/shm")


def program(
    node: AgentNode,
    mib: int,
    environment: dict[str, str],
    memory: str | None = None,
    user: int | None = None,
) -> subprocess.Popen[str]:
    """Start a program that holds memory; its /dev/shm is a folder, None: that of this process."""
    mounted = 'mount --bind "$0" /dev/shm && exec "$@"'
    within = [] if memory is None else ["unshare", "--mount", "sh", "-c", mounted, memory]
    library = node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
    # The interpreter itself may lie where no other user may go.
    as_user = f"import ctypes, os; os.setuid({user})\n{HOLDER.read_text()}"
    script = [str(HOLDER)] if user is None else ["-c", as_user]
    return subprocess.Popen(
        [*within, sys.executable, "-S", *script, str(library), str(mib)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def exit_code(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def ask(process: subprocess.Popen[str], word: str) -> int:
    """Have a program allocate once more ("init") and return its error, 0 without one."""
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return exit_code(process)


def end(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        process.kill()
        process.communicate()


def nothing_is_left(node: AgentNode) -> None:
    assert set(modes(node)) == {"Default"}
    assert record(node) == {}
    assert daemons_of(node) == []
    assert not list((node.folder / "state/mps").glob("*"))
    assert not list((node.folder / "mps").glob("*"))
