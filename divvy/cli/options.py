"""Options that several commands have, with one name and one meaning each."""

from pathlib import Path
from typing import Annotated

import typer

from divvy.stack.errors import StackError
from divvy.stack.project import find_project


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
        "--stack", "-s", envvar="PULUMI_STACK", help="The stack.", autocompletion=stack_names
    ),
]
StackName = Annotated[
    str | None, typer.Option("--stack", "-s", help="The stack.", autocompletion=stack_names)
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
