"""divvy cancel: remove the locks of a run that no longer exists."""

import typer

from divvy.cli.confirm import confirm
from divvy.cli.options import Stack, Yes
from divvy.cli.target import target_of
from divvy.engine.state.backend import backend_root
from divvy.engine.state.lock import break_locks


def cancel(stack: Stack, *, yes: Yes = False) -> None:
    """Remove the locks of a run that no longer exists."""
    target = target_of(stack)
    confirm(
        yes=yes, question="Remove the stack's lock? A run that is still active would be disrupted."
    )
    project = target.project
    count = break_locks(backend_root(project) / ".pulumi", project.name, target.stack)
    typer.echo(f"{count} lock(s) removed")
