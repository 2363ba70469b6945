"""The ways in which a command ends that does not simply succeed."""

from typing import NoReturn

FAILED, CHANGES, NOTHING_CHECKED, REQUIRED_NOT_CHECKED, INTERRUPTED = 1, 2, 2, 3, 130


class CommandError(Exception):
    """A command cannot do what it was asked; the text says why and what would be right."""


def fail(message: str) -> NoReturn:
    """End the command with one error."""
    raise CommandError(message)
