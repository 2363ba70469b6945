"""Answers of one library as they come in: they stay on the disk if a call ends the process."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_LIST = 64


class Recording:
    """Keeps of every call its code and value, by a text that names the call and its arguments.

    Calls of ``left_out`` are not made: they have ended an earlier process.
    """

    def __init__(self, path: Path, left_out: Container[str] = ()) -> None:
        self._file = path.open("w")
        self._left_out = left_out

    def begin(self, call: str) -> bool:
        """Record which call comes next, the last where it never returns; False: leave it out."""
        if call in self._left_out:
            return False
        self._write({"begin": call})
        return True

    def add(self, call: str, code: int, value: object = None) -> None:
        """Keep one answer."""
        self._write({"call": call, "code": code, "value": plain(value)})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


@dataclass(frozen=True)
class Recorded:
    """What a file of answers says; ``running`` is the call that did not return, "" if all did."""

    answers: dict[str, dict[str, Any]]
    running: str


def read(path: Path) -> Recorded:
    """Read a recording, also one that was broken off; raises OSError."""
    answers: dict[str, dict[str, Any]] = {}
    running = ""
    for text in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            line = json.loads(text)
            running = line.get("begin", "")
            if "call" in line:
                answers[line["call"]] = {"code": line["code"], "value": line["value"]}
    return Recorded(answers, running)


def plain(value: object) -> Any:
    """Return a ctypes or pynvml value as JSON has it; pointers and handles as the word handle."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        return value.partition(b"\0")[0].decode(errors="replace")
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value[:_MAX_LIST]]
    if isinstance(value, ctypes.Structure):
        return {name: plain(getattr(value, name)) for name in _fields(value)}
    if isinstance(value, ctypes.Array):
        return [plain(value[at]) for at in range(min(len(value), _MAX_LIST))]
    if isinstance(value, ctypes._SimpleCData):
        return plain(value.value)
    return "handle"


def _fields(value: ctypes.Structure) -> list[str]:
    return [field[0] for field in value._fields_]
