"""divvy preview: what `divvy up` would do."""

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.options import Diff, ExpectNoChanges, Stack
from divvy.engine.program import Program
from divvy.stack.project import find_project

_Json = Annotated[bool, typer.Option("--json", help="Print the preview digest as JSON.")]


def preview(
    stack: Stack,
    *,
    as_json: _Json = False,
    expect_no_changes: ExpectNoChanges = False,
    diff: Diff = False,
) -> None:
    """Show what `up` would do; exit code 0: nothing, 2: something, 1: an error."""
    with contextlib.closing(Program(find_project(Path.cwd()))) as program:
        # The program's process loads the SDK while this one loads the engine.
        from divvy.cli.runs import run_preview  # noqa: PLC0415

        run_preview(program, stack, as_json, expect_no_changes, diff)
