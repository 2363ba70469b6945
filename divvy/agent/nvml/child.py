"""The NVML process: calls in, JSON lines out.

Started by ``divvy.agent.nvml.process`` as ``python -m divvy.agent.nvml.child <library> <root>``.
Each input line is ``{"id", "call", "lane", "args"}``; each output line is ``{"id", "ok"|"error"}``
or ``{"xid": …}`` for an event that arrived. Calls of one lane run one after the other in a thread
of their own, so that a GPU that does not answer holds up its own lane alone. The process ends when
its input or its output closes, whatever its threads are waiting for.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TextIO

import pynvml as nvml

from divvy.agent.nvml import calls, compute_mode, mig_calls

_EVENT_WAIT_MS = 60_000
_Table = dict[str, Callable[..., Any]]


class _Lines:
    """Writes whole JSON lines from several threads; ends the process when the reader is gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, value: dict[str, Any]) -> None:
        with self._lock:
            try:
                self._stream.write(json.dumps(value, separators=(",", ":")) + "\n")
                self._stream.flush()
            except BrokenPipeError:
                # The agent was killed; a traceback of ours would be the last line of its log.
                os._exit(0)


class _Lane:
    """Makes calls one after the other, in a thread."""

    def __init__(self, table: _Table, lines: _Lines) -> None:
        self._table = table
        self._lines = lines
        self._requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def put(self, request: dict[str, Any]) -> None:
        self._requests.put(request)

    def _run(self) -> None:
        while True:
            request = self._requests.get()
            try:
                answer = {"ok": self._table[request["call"]](**request["args"])}
            except nvml.NVMLError as error:
                answer = {"error": {"code": error.value, "text": str(error)}}
            except Exception as error:  # noqa: BLE001 (any answer is better than none)
                answer = {"error": {"code": None, "text": f"{type(error).__name__}: {error}"}}
            self._lines.write({"id": request["id"], **answer})


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
        code = getattr(error, "value", None)
        lines.write({"id": 0, "error": {"code": code, "text": str(error)}})
        return
    lines.write({"id": 0, "ok": {"version": nvml.nvmlSystemGetDriverVersion()}})
    table: _Table = {
        "driver": calls.driver,
        "describe": lambda **args: calls.describe(root, **args),
        "links": calls.links,
        "compute_mode": compute_mode.compute_mode,
        "set_compute_mode": compute_mode.set_compute_mode,
        "set_mig_mode": mig_calls.set_mig_mode,
        "create_instance": mig_calls.create_instance,
        "complete_instance": mig_calls.complete_instance,
        "destroy_instance": mig_calls.destroy_instance,
        "processes": calls.processes,
        "readings": calls.readings,
        "utilisation": calls.utilisation,
        "watch": lambda bus_id: _watch(bus_id, lines),
    }
    lanes: dict[str, _Lane] = {}
    for line in sys.stdin:
        request = json.loads(line)
        name = request["lane"]
        if name not in lanes:
            lanes[name] = _Lane(table, lines)
        lanes[name].put(request)
    # Not the interpreter's own end: it would wait for what a thread has locked.
    os._exit(0)


def _watch(bus_id: str, lines: _Lines) -> dict[str, Any]:
    """Report the XID events of one GPU from a thread; a GPU without them is only probed."""
    handle = mig_calls.handle(bus_id)
    supported = nvml.nvmlDeviceGetSupportedEventTypes(handle)
    if not supported & nvml.nvmlEventTypeXidCriticalError:
        return {"watched": False}
    # A set for each GPU: one that is waited for is never added to.
    events = nvml.nvmlEventSetCreate()
    try:
        nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
        # Now: one that has fallen off the bus does not even tell who it is.
        uuid = nvml.nvmlDeviceGetUUID(handle)
    except nvml.NVMLError:
        _free(events)  # each look at the GPU tries again
        raise
    reporting = (lines, events, bus_id, uuid)
    threading.Thread(target=_report_events, args=reporting, daemon=True).start()
    return {"watched": True}


def _free(events: Any) -> None:
    with contextlib.suppress(nvml.NVMLError):  # with a driver that is gone, so are its sets
        nvml.nvmlEventSetFree(events)


def _report_events(lines: _Lines, events: Any, bus_id: str, uuid: str) -> None:
    while True:
        try:
            event = nvml.nvmlEventSetWait_v2(events, _EVENT_WAIT_MS)
        except nvml.NVMLError_Timeout:
            continue
        except nvml.NVMLError as error:
            _free(events)
            lines.write({"events_ended": bus_id, "code": error.value, "text": str(error)})
            return
        gi = None if event.gpuInstanceId == 0xFFFFFFFF else event.gpuInstanceId
        lines.write({"xid": event.eventData, "uuid": uuid, "gi": gi})


if __name__ == "__main__":
    main()
