"""Reset one GPU through nvidia-smi, in a process that ends with the agent.

``python -m divvy.agent.nvml.reset <agent's process ID> <nvidia-smi> <arguments>`` becomes
nvidia-smi.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

from divvy.agent.driver_root import driver_program, preloaded
from divvy.agent.nvml.process import DriverProblem

# A reset of an SXM GPU with NVLink takes minutes.
_DEADLINE = 600.0
_PR_SET_PDEATHSIG = 1  # prctl(2)


async def reset_gpu(root: Path, uuid: str) -> None:
    """Reset the GPU; raises DriverProblem.

    The agent is killed while nvidia-smi waits for its turn. If nvidia-smi lived on, the next
    agent could partition the GPU and hand out its instances before the reset that destroys them.
    """
    program = root / (driver_program(root, "nvidia-smi") or "usr/bin/nvidia-smi")
    nvidia_smi = (str(program), "--gpu-reset", "-i", uuid)
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__, str(os.getpid()), *nvidia_smi),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, **preloaded(root)},
            start_new_session=True,
        )
    except OSError as error:
        raise DriverProblem(f"reset of {uuid} failed: {error}") from error
    try:
        async with asyncio.timeout(_DEADLINE):
            output, _ = await process.communicate()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        raise DriverProblem(
            f"reset of {uuid} failed: nvidia-smi did not end within {_DEADLINE:g} s"
        ) from None
    if process.returncode:
        words = output.decode(errors="replace").strip()
        reason = words or f"nvidia-smi ended with {process.returncode}"
        raise DriverProblem(f"reset of {uuid} failed: {reason}")


def _become(parent: int, command: list[str]) -> None:
    """Replace this process by a command that the kernel kills when its parent ends."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the agent has ended")  # before the kernel was asked
    try:
        os.execv(command[0], command)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2:])
