"""divvy refresh: read the cluster's state into the stack's."""

from typing import Annotated

import typer

from divvy.cli.confirm import confirm
from divvy.cli.errors import CHANGES
from divvy.cli.options import Stack, Yes
from divvy.cli.runs import conclude, watching
from divvy.cli.target import target_of
from divvy.engine import operations

_Clear = Annotated[
    bool,
    typer.Option("--clear-pending-creates", help="Forget creations that were interrupted."),
]


def refresh(stack: Stack, *, yes: Yes = False, clear_pending_creates: _Clear = False) -> None:
    """Read the cluster's state into the stack's; exit code 2 if it differed."""
    chosen = target_of(stack)
    confirm(yes=yes, question="Read the cluster's state into the stack's?")
    summary = operations.refresh(
        chosen, watching(preview=False), clear_pending=clear_pending_creates
    )
    conclude(summary, preview=False, diff=False)
    if summary.changes:
        raise typer.Exit(CHANGES)
