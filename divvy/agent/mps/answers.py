"""What can come instead of a control daemon's answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

Run = Callable[[Sequence[str], str], Awaitable[str]]
"""Run the control program with arguments and a text on its input; raises NoAnswer, Refused."""


class NoAnswer(Exception):
    """The daemon did not answer, or not as it should: what came instead."""


class Refused(NoAnswer):
    """The daemon answered a command with an error: which."""


def refusal(command: str, answer: str) -> Refused:
    """Return the error of a command, by its first words and what was answered."""
    return Refused(f"{command}: {' '.join(answer.split())}")
