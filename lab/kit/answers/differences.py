"""Two drivers' answers to the same calls, side by side; values in, values out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Values that tell one GPU from another of its kind, or change from moment to moment: of these the
# code and the shape are compared.
_VOLATILE = re.compile(
    r"UUID|Uuid|Serial|GetPdi|BoardPartNumber|BoardId|PCIBusId|PciInfo|MinorNumber|GetIndex"
    r"|ModuleId|BBX|(Get|Margin)Temperature(V\d?)?\(|DynamicPstates|CurrentClockFreqs"
    r"|ThermalSettings|PowerUsage|PowerState|EnergyConsumption"
    r"|nvmlDeviceGetClockInfo|GetClock\(gpu, \d, 0\)|Utilization|Throughput|ThrottleReasons"
    r"|EventReasons|Violation|PerformanceState|FanSpeed|Samples|EccErrors|ErrorCounter|Affinity"
    r"|Numa|Processes|ProcessDetail|RetiredPages|RemappedRows|VbiosVersion|Inforom|PidInfo"
    r"|GspFirmware|PersistenceMode|GetPcieReplayCounter|GetIrqNum|GetCurrPcie|Timestamp"
    r"|MemoryInfo.*\.(free|used|reserved)$|MemGetInfo.*\.free$|BAR1.*\.(bar1Free|bar1Used)$"
    r"|cuDeviceGetAttribute\((20|33|34|50|134), |FuncGetAttribute\([3467]\)"
)

Kind = Literal["code", "shape", "value"]


@dataclass(frozen=True)
class Difference:
    """One answer that is not the same: of a call, or of a part of what it returns."""

    call: str
    kind: Kind
    simulated: str
    real: str


@dataclass(frozen=True)
class Comparison:
    """What came of all calls that both answered; ``alone`` are those that one of them lacks."""

    compared: int
    differences: tuple[Difference, ...]
    only_simulated: tuple[str, ...]
    only_real: tuple[str, ...]

    def count(self, kind: Kind) -> int:
        """Return how many differences are of a kind."""
        return sum(difference.kind == kind for difference in self.differences)


# NVML's and CUDA's words for a function that the library does not have.
_ABSENT = {"nvml": 13, "cuda": -1}


def compare(kind: str, simulated: Mapping[str, Any], real: Mapping[str, Any]) -> Comparison:
    """Compare the answers of two libraries of one kind, "nvml" or "cuda"."""
    ours, theirs = (_present(kind, answers) for answers in (simulated, real))
    both = [call for call in ours if call in theirs]
    differences = [
        difference for call in both for difference in _compared(call, ours[call], theirs[call])
    ]
    return Comparison(
        len(both),
        tuple(differences),
        tuple(sorted(ours.keys() - theirs.keys())),
        tuple(sorted(theirs.keys() - ours.keys())),
    )


def public(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers without the values that tell whose GPU it is."""
    return {
        call: {**answer, "value": _public(call, answer["value"])}
        for call, answer in answers.items()
    }


def text(answers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the answers of several libraries as JSON, a call on each line, in order."""
    libraries = (
        f"{json.dumps(kind)}: {{\n"
        + ",\n".join(
            f"  {json.dumps(call)}: {json.dumps(answer, sort_keys=True)}"
            for call, answer in sorted(calls.items())
        )
        + "\n}"
        for kind, calls in sorted(answers.items())
    )
    return "{\n" + ",\n".join(libraries) + "\n}\n"


def _present(kind: str, answers: Mapping[str, Any]) -> dict[str, Any]:
    return {call: answer for call, answer in answers.items() if answer["code"] != _ABSENT[kind]}


def _compared(
    call: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[Difference]:
    if ours["code"] != theirs["code"]:
        yield Difference(call, "code", str(ours["code"]), str(theirs["code"]))
        return
    yield from _values(call, ours["value"], theirs["value"])


def _values(path: str, ours: Any, theirs: Any) -> Iterator[Difference]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted(ours.keys() | theirs.keys()):
            yield from _values(f"{path}.{name}", ours.get(name), theirs.get(name))
    elif _VOLATILE.search(path):
        if shape(ours) != shape(theirs):
            yield Difference(path, "shape", shape(ours), shape(theirs))
    elif ours != theirs:
        kind: Kind = "value" if shape(ours) == shape(theirs) else "shape"
        yield Difference(path, kind, str(ours), str(theirs))


def shape(value: Any) -> str:
    """Return what a value is like, whatever it is: text, number, list of numbers, fields.

    A public value says it itself.
    """
    if isinstance(value, str) and (stated := re.fullmatch("<(.+)>", value)):
        return stated[1]
    if isinstance(value, list):
        return f"list of {shape(value[0])}" if value else "empty list"
    if isinstance(value, dict):
        return f"{', '.join(sorted(value))}"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "text" if value else "empty text"
    return "number"


def _public(path: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _public(f"{path}.{name}", item) for name, item in value.items()}
    return f"<{shape(value)}>" if _VOLATILE.search(path) else value
