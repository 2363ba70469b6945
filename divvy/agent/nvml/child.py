"""The discovery process: NVML calls in, JSON lines out.

Started by ``divvy.agent.nvml.process`` as ``python -m divvy.agent.nvml.child
<library> <root>``. Each input line is ``{"id", "call", "args"}``; each output
line is ``{"id", "ok"|"error"}`` or ``{"xid": …}`` for an event that arrived.
It ends when its input closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import pynvml as nvml

from divvy.agent.nvml import calls


class _Lines:
    """Writes whole JSON lines from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, value: dict[str, Any]) -> None:
        with self._lock:
            self._stream.write(json.dumps(value, separators=(",", ":")) + "\n")
            self._stream.flush()


def main() -> None:
    """Load the library named by the arguments, then answer calls until input ends."""
    library, root = sys.argv[1], Path(sys.argv[2])
    # The answers go to the pipe that was our standard output; anything that the
    # driver prints goes to standard error instead.
    lines = _Lines(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    try:
        calls.load(library)
    except (OSError, nvml.NVMLError) as error:
        lines.write({"id": 0, "error": {"code": _code(error), "text": str(error)}})
        return
    lines.write({"id": 0, "ok": {"version": nvml.nvmlSystemGetDriverVersion()}})
    table: dict[str, Callable[..., Any]] = {
        "snapshot": lambda: calls.snapshot(root),
        "set_mig_mode": calls.set_mig_mode,
        "create_instance": calls.create_instance,
        "complete_instance": calls.complete_instance,
        "destroy_instance": calls.destroy_instance,
        "processes": calls.processes,
        "readings": calls.readings,
        "probe": calls.probe,
        "watch": lambda: _watch(lines),
    }
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = table[request["call"]](**request["args"])
            lines.write({"id": request["id"], "ok": answer})
        except nvml.NVMLError as error:
            problem = {"code": _code(error), "text": str(error)}
            lines.write({"id": request["id"], "error": problem})


def _code(error: Exception) -> int | None:
    return getattr(error, "value", None)


def _watch(lines: _Lines) -> dict[str, Any]:
    """Register every GPU for XID events and report them from a thread."""
    events = nvml.nvmlEventSetCreate()
    watched = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            supported = nvml.nvmlDeviceGetSupportedEventTypes(handle)
            nvml.nvmlDeviceRegisterEvents(
                handle, supported & nvml.nvmlEventTypeXidCriticalError, events
            )
            watched.append(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError:
            continue  # a model without events, or a lost GPU: probes still cover it
    threading.Thread(target=_report_events, args=(lines, events), daemon=True).start()
    return {"watched": watched}


def _report_events(lines: _Lines, events: Any) -> None:
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, 5000)
        except nvml.NVMLError_Timeout:
            continue
        except nvml.NVMLError as error:
            lines.write({"events_ended": str(error)})
            return
        try:
            uuid = nvml.nvmlDeviceGetUUID(event.device)
        except nvml.NVMLError:
            uuid = None
        lines.write({"xid": event.eventData, "uuid": uuid, "gi": _gi(event.gpuInstanceId)})


def _gi(raw: int) -> int | None:
    return None if raw == 0xFFFFFFFF else raw


if __name__ == "__main__":
    main()
