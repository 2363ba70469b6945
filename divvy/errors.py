"""How a command says that it cannot do what it was asked."""

from typing import NoReturn


class CommandError(Exception):
    """What was asked cannot be done; the text says why and what would be right."""


def fail(message: str) -> NoReturn:
    """End the command with one error."""
    raise CommandError(message)
