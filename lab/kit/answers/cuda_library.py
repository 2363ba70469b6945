"""A CUDA library whose every answer is kept."""

from __future__ import annotations

import ctypes as c
from typing import Any

from lab.kit.answers.recording import Recording


class Cuda:
    """Calls one library by name and keeps what it answers."""

    def __init__(self, library: str, recording: Recording) -> None:
        self._library = c.CDLL(library)
        self._recording = recording

    def ask(self, name: str, label: str, *arguments: Any, value: Any = None, when: str = "") -> int:
        """Make a call; ``value`` is what it writes, ``when`` tells it from the same call before."""
        call = f"{name}({label}){f' {when}' if when else ''}"
        if not self._recording.begin(call):
            return -1
        try:
            function = getattr(self._library, name)
        except AttributeError:
            return -1
        code = int(function(*arguments))
        answer = None if code else (value() if callable(value) else value)
        self._recording.add(call, code, answer)
        return code

    def number(self, name: str, label: str, kind: Any, *after: Any, when: str = "") -> Any:
        """Make a call that writes one number, its first argument."""
        number = kind()
        self.ask(name, label, c.byref(number), *after, value=lambda: number.value, when=when)
        return number
