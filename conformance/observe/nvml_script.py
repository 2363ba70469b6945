"""Scripts that ask NVML in the agent's pod: it has the bindings and the driver's files."""

from __future__ import annotations

import json
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from divvy.model.api_names import DRIVER_ROOT

# What a script begins with. ``ask`` returns None for what the GPU or its driver does not have, and
# the driver's words for another error; ``print_each`` prints by UUID what is seen of each GPU, and
# by index what those words mean of one that has no handle.
OPEN_NVML = """
import ctypes, json, pathlib, sys
import pynvml as nvml
from divvy.agent.driver_root import nvml_library
nvml.nvmlLib = ctypes.CDLL(str(nvml_library(pathlib.Path(sys.argv[1]))))
nvml.nvmlInit()
absent = (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
def ask(call, *arguments):
    try:
        return call(*arguments)
    except nvml.NVMLError as problem:
        return None if problem.value in absent else str(problem)
def in_mig_mode(gpu):
    mode = ask(nvml.nvmlDeviceGetMigMode, gpu)
    return isinstance(mode, (list, tuple)) and mode[0] == 1
def print_each(look, lost=None):
    seen = {}
    for index in range(nvml.nvmlDeviceGetCount()):
        gpu = ask(nvml.nvmlDeviceGetHandleByIndex, index)
        if not isinstance(gpu, str):
            seen[ask(nvml.nvmlDeviceGetUUID, gpu)] = look(gpu)
        elif lost is not None:
            seen[f"GPU {index}"] = lost(gpu)
    print(json.dumps(seen))
def parts(gpu):
    try:
        places = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    except nvml.NVMLError:
        return
    for place in range(places):
        try:
            part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, place)
            yield nvml.nvmlDeviceGetUUID(part)
        except nvml.NVMLError:
            continue
"""


def run_nvml_script(target: ClusterUnderTest, node: str, script: str) -> Any:
    """Return the JSON that a script prints; None without an agent to run it."""
    text = target.enter(node, "python3 -c %s %s", script, DRIVER_ROOT)
    return None if text is None else json.loads(text)
