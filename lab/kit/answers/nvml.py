"""NVML's answers through NVIDIA's own binding: every question that changes nothing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pynvml

from divvy.agent.nvml import calls
from lab.kit.answers.recording import Recording

_QUESTION = re.compile(r"nvml(Device|System|Unit)(Get|Is)|nvmlGet")
# Of another kind of handle, answered by waiting, or of other machines' use.
_LEFT_OUT = re.compile(r"Vgpu|EventSet|HandleBy|Unit(?!GetCount)|NearestGpus|ConfCompute.*Report")
_DEVICE = ("handle", "device")
_BAD_UUID = "GPU-00000000-0000-0000-0000-000000000000"
# Further arguments, after the GPU. NVML takes an unknown number for a mistake of the caller.
_CLOCKS = [(kind,) for kind in (0, 1, 2, 3, 99)]
_PAIRS = [(first, second) for first in (0, 1) for second in (0, 1)]
_PROFILES = [(number,) for number in range(12)]
_MORE: dict[str, list[tuple[Any, ...]]] = {
    "nvmlDeviceGetAPIRestriction": [(0,), (1,), (99,)],
    "nvmlDeviceGetApplicationsClock": _CLOCKS,
    "nvmlDeviceGetClock": [(kind, which) for kind in (0, 1, 2) for which in (0, 1, 2, 3)],
    "nvmlDeviceGetClockInfo": _CLOCKS,
    "nvmlDeviceGetCpuAffinity": [(1,)],
    "nvmlDeviceGetCpuAffinityWithinScope": [(1, 0), (1, 1)],
    "nvmlDeviceGetDefaultApplicationsClock": _CLOCKS,
    "nvmlDeviceGetDetailedEccErrors": _PAIRS,
    "nvmlDeviceGetEncoderCapacity": [(0,)],
    "nvmlDeviceGetFanSpeed_v2": [(0,)],
    "nvmlDeviceGetGpuInstancePossiblePlacements": [(19,), (9,), (0,), (99,)],
    "nvmlDeviceGetGpuInstanceProfileInfo": _PROFILES,
    "nvmlDeviceGetGpuInstanceRemainingCapacity": [(19,), (9,), (0,), (99,)],
    "nvmlDeviceGetInforomVersion": [(0,), (1,), (2,)],
    "nvmlDeviceGetMaxClockInfo": _CLOCKS,
    "nvmlDeviceGetMemoryAffinity": [(1, 0)],
    "nvmlDeviceGetMemoryErrorCounter": [
        (error_type, counter_type, 2) for error_type, counter_type in _PAIRS
    ],
    "nvmlDeviceGetMigDeviceHandleByIndex": [(0,), (99,)],
    "nvmlDeviceGetNvLinkCapability": [(0, number) for number in range(6)],
    "nvmlDeviceGetNvLinkErrorCounter": [(0, 0)],
    "nvmlDeviceGetNvLinkRemotePciInfo": [(0,), (99,)],
    "nvmlDeviceGetNvLinkState": [(0,), (17,), (99,)],
    "nvmlDeviceGetNvLinkVersion": [(0,), (99,)],
    "nvmlDeviceGetPcieThroughput": [(0,), (1,)],
    "nvmlDeviceGetRetiredPages": [(0,), (1,)],
    "nvmlDeviceGetTemperature": [(0,), (99,)],
    "nvmlDeviceGetTemperatureThreshold": [(number,) for number in range(8)],
    "nvmlDeviceGetTotalEccErrors": _PAIRS,
    "nvmlDeviceGetViolationStatus": [(0,), (1,)],
}
_SYSTEM: dict[str, list[tuple[Any, ...]]] = {
    "nvmlDeviceGetHandleByIndex": [(0,), (99,)],
    "nvmlDeviceGetHandleByPciBusId": [(b"00000000:FF:1F.0",), (b"nonsense",)],
    "nvmlDeviceGetHandleBySerial": [(b"0",)],
    "nvmlDeviceGetHandleByUUID": [(_BAD_UUID.encode(),), (b"nonsense",)],
    "nvmlSystemGetProcessName": [(4_000_000,)],
}


def record(library: str, recording: Recording, index: int) -> None:
    """Ask one library everything about one GPU; raises NVMLError if it does not begin."""
    calls.load(library)
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    for name, function in _questions():
        required = [
            parameter.name
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty
        ]
        if name in _SYSTEM:
            for arguments in _SYSTEM[name]:
                _ask(recording, name, arguments, arguments)
        elif not required:
            _ask(recording, name, (), ())
        elif len(required) == 1 and required[0] in _DEVICE:
            _ask(recording, name, ("gpu",), (handle,))
        elif name in _MORE:
            for arguments in _MORE[name]:
                _ask(recording, name, ("gpu", *arguments), (handle, *arguments))
    for name in ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor"):
        more = (0,) if name.endswith("P2PStatus") else ()
        _ask(recording, name, ("gpu", "gpu", *more), (handle, handle, *more))


def _questions() -> Iterator[tuple[str, Any]]:
    for name, function in sorted(vars(pynvml).items()):
        if not inspect.isfunction(function):
            continue
        if name in _SYSTEM or (_QUESTION.match(name) and not _LEFT_OUT.search(name)):
            yield name, function


def _ask(
    recording: Recording, name: str, printed: tuple[Any, ...], arguments: tuple[Any, ...]
) -> None:
    words = (
        argument.decode() if isinstance(argument, bytes) else str(argument) for argument in printed
    )
    call = f"{name}({', '.join(words)})"
    if not recording.begin(call):
        return
    try:
        recording.add(call, 0, getattr(pynvml, name)(*arguments))
    except pynvml.NVMLError as error:
        recording.add(call, error.value)
    except (TypeError, ValueError, AttributeError, KeyError, UnicodeDecodeError):
        # The binding does not take what the library gives, or wants other arguments: no answer.
        return
