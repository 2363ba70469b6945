"""Options that several commands have, with one name and one meaning each."""

from pathlib import Path
from typing import Annotated

import typer

Stack = Annotated[str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="The stack.")]
StackName = Annotated[str | None, typer.Option("--stack", "-s", help="The stack.")]
StackPath = Annotated[
    Path | None, typer.Option("--file", help="A stack file instead of a stack's name.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Diff = Annotated[bool, typer.Option("--diff", help="Show the values that change.")]
ExpectNoChanges = Annotated[
    bool, typer.Option("--expect-no-changes", help="Fail if anything would change.")
]
