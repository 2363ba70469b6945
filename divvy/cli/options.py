"""Options that several commands have, with one name and one meaning each."""

import os
from pathlib import Path
from typing import Annotated

import typer

from divvy.stack.errors import StackError
from divvy.stack.project import find_project

_VARIABLE = "PULUMI_STACK"


def named_stack(stack: str | None, file: Path | None) -> str | None:
    """Return the stack that a command is about: the environment's where it names nothing."""
    return stack if stack or file else os.environ.get(_VARIABLE)


def stack_names(incomplete: str) -> list[str]:
    """Return the stacks that a shell offers: those with a file in the project around it."""
    try:
        known = find_project(Path.cwd()).stacks()
    except (StackError, OSError):
        return []
    return [name for name in known if name.startswith(incomplete)]


Stack = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        envvar=_VARIABLE,
        help="The stack; also without -s.",
        autocompletion=stack_names,
    ),
]
StackName = Annotated[
    str | None,
    typer.Option(
        "--stack", "-s", help=f"The stack, or that of {_VARIABLE}.", autocompletion=stack_names
    ),
]
StackPath = Annotated[
    Path | None, typer.Option("--file", help="A stack file instead of a stack's name.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the values that change.")]
ExpectNoChanges = Annotated[
    bool, typer.Option("--expect-no-changes", help="Fail if anything would change.")
]
