"""The stack that a command is about."""

from pathlib import Path

from divvy.engine.operations import Target
from divvy.stack.project import find_project


def target_of(stack: str) -> Target:
    """Return a stack of the project around the current directory."""
    return Target(find_project(Path.cwd()), stack)
