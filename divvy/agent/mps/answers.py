"""Errors that can come instead of a control daemon's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

Run = Callable[[Sequence[str], str], Awaitable[str]]
"""Run the control program with arguments and a text on its input; raises NoAnswer, Refused."""

# Of the kernel's largest PID, 4194304; and Python refuses to read a number of thousands.
_MAX_DIGITS = 7
# It goes into the node's status.
_MAX_QUOTE = 300


class NoAnswer(Exception):
    """The daemon did not answer, or not as it should: what came instead."""


class Refused(NoAnswer):
    """The daemon answered a command with an error: which."""


def pid(word: str, answer: str) -> int:
    """Read a PID from an answer; raises NoAnswer if it is not a number, or is too long."""
    if not word.isdecimal() or len(word) > _MAX_DIGITS:
        raise NoAnswer(answer.strip() or "nothing")
    return int(word)


def refusal(command: str, answer: str) -> Refused:
    """Return the error of a command, by its first words and what was answered, if it is short."""
    words = " ".join(answer.split())
    return Refused(f"{command}: {words if len(words) <= _MAX_QUOTE else f'{words[:_MAX_QUOTE]}…'}")
