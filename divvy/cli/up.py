"""divvy up: bring the cluster to what the stack file says."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.options import Diff, ExpectNoChanges, Stack, Yes
from divvy.engine.program import Program
from divvy.stack.project import find_project

_Skip = Annotated[bool, typer.Option("--skip-preview", help="Do not preview before the update.")]
_Wait = Annotated[bool, typer.Option(help="Wait until the nodes advertise what the plan says.")]


def up(
    stack: Stack,
    *,
    yes: Yes = False,
    skip_preview: _Skip = False,
    expect_no_changes: ExpectNoChanges = False,
    diff: Diff = False,
    wait: _Wait = True,
) -> None:
    """Bring the cluster to the state in the stack file; exit code 2: nodes still differ."""
    project = find_project(Path.cwd())
    if not (skip_preview or yes) or expect_no_changes:
        with contextlib.closing(Program(project)) as program:
            # The program's process loads the SDK while this one loads the engine.
            from divvy.cli.runs import preview_and_confirm  # noqa: PLC0415

            if not preview_and_confirm(program, stack, yes, expect_no_changes, diff):
                return
    with contextlib.closing(Program(project)) as program:
        from divvy.cli.runs import run_up  # noqa: PLC0415

        run_up(program, stack, yes, diff, wait=wait)
