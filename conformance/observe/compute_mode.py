"""A GPU's compute mode or MPS daemon: whether several processes may use it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script

_EXCLUSIVE = "Exclusive_Process"
# As nvidia-smi words NVML_COMPUTEMODE_*.
_MODES = ("Default", "Exclusive_Thread", "Prohibited", _EXCLUSIVE)
# Runs in the agent's pod. A GPU with an MPS daemon has its answer instead of the mode alone: by
# version 2 of MPS, whose commands come by standard input, or by version 3.
_SCRIPT = (
    OPEN_NVML
    + """\
import os, subprocess
from divvy.agent.driver_root import driver_program, preloaded
folder = os.environ.get("DIVVY_STATE_FOLDER", "/var/lib/divvy")
def daemon(uuid):
    pipes = PIPES.format(state=folder, uuid=uuid)
    if not os.path.isdir(pipes):
        return "none"
    root, name = pathlib.Path(sys.argv[1]), "nvidia-cuda-mps-control"
    program = root / (driver_program(root, name) or f"usr/bin/{name}")
    environment = {**os.environ, **preloaded(root), "CUDA_MPS_PIPE_DIRECTORY": pipes}
    refusals = []
    for words, text in (([], "get_server_list"), (["-p", "3", "server", "list"], "")):
        try:
            done = subprocess.run([program, *words], input=text, env=environment, timeout=5,
                                  text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except (OSError, subprocess.TimeoutExpired) as problem:
            return type(problem).__name__
        if done.returncode == 0:
            return "answers"
        refusals.append(done.stdout.strip())
    return refusals[0]
def mode(gpu):
    return [ask(nvml.nvmlDeviceGetComputeMode, gpu), daemon(ask(nvml.nvmlDeviceGetUUID, gpu))]
print_each(mode, lambda words: [words, "none"])
"""
)


Access = Mapping[str, tuple[int | str | None, str]]


def compute_modes(target: ClusterUnderTest, node: str) -> Access | None:
    """Return each GPU's mode and what its MPS daemon answers, by UUID in the driver's order.

    A GPU that does not answer has its index for a name and the driver's error for a mode. None
    without an agent to ask the driver.
    """
    look = script(target.implementation.mps_pipes)
    modes: Access | None = run_nvml_script(target, node, look)
    return modes


def script(pipes: str) -> str:
    """Return the script that looks for MPS daemons by their sockets in these folders."""
    return f"PIPES = {pipes!r}\n{_SCRIPT}"


def let_in(access: Access, by_mps: Sequence[bool]) -> Verdict:
    """Judge the GPUs of a node, of which ``by_mps`` says in the same order who MPS shares.

    A driver that has no modes lets every process in. Which GPU is missing of a shorter list is not
    known: its modes cannot be judged.
    """
    wrong = []
    if len(access) < len(by_mps):
        return f"{len(by_mps)} GPUs", f"the driver lists {len(access)} GPUs (see NODE-01)"
    for (uuid, (mode, daemon)), shared in zip(access.items(), by_mps, strict=False):
        named = _MODES[mode] if isinstance(mode, int) and mode < len(_MODES) else mode
        if shared and named != _EXCLUSIVE:
            wrong.append(f"{uuid}: {named}")
        elif shared and daemon != "answers":
            wrong.append(f"{uuid}: its MPS daemon: {daemon}")
        elif not shared and mode not in (0, None):
            wrong.append(f"{uuid}: {named}")
    expected = "compute mode Default"
    if any(by_mps):
        expected += f"; by MPS {_EXCLUSIVE} and a daemon that answers"
    return expected, "; ".join(wrong) or expected
