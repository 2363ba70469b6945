"""Asking before something is changed."""

import sys

import typer

from divvy.errors import fail


def confirm(*, yes: bool, question: str) -> None:
    """Ask for confirmation unless ``yes``; raises CommandError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("not a terminal: use --yes to go on without being asked")
    if not typer.confirm(question):
        typer.echo("nothing was changed")
        raise typer.Exit(0)
