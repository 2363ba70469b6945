"""divvy up, preview, destroy, refresh, cancel: the stack's program on the embedded engine."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from divvy.engine.operations import Target
    from divvy.engine.program import Program
    from divvy.engine.watcher import Summary, Watcher

_Stack = Annotated[str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="The stack.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
_Targets = Annotated[list[str] | None, typer.Option("--target", help="Only this URN (repeatable).")]
_Json = Annotated[bool, typer.Option("--json", help="Print the preview digest as JSON.")]
_Expect = Annotated[
    bool, typer.Option("--expect-no-changes", help="Fail when anything would change.")
]
_Diff = Annotated[bool, typer.Option("--diff", help="Show the values that change.")]
_Skip = Annotated[bool, typer.Option("--skip-preview", help="Do not preview before the update.")]


def register(app: typer.Typer) -> None:
    """Add the commands to divvy."""
    app.command()(preview)
    app.command()(up)
    app.command()(destroy)
    app.command()(refresh)
    app.command()(cancel)


def preview(
    stack: _Stack,
    *,
    target: _Targets = None,
    as_json: _Json = False,
    expect_no_changes: _Expect = False,
    diff: _Diff = False,
) -> None:
    """Show what `up` would do; exit code 2 when something would change."""
    with plain_errors():
        with _program() as program:
            from divvy.engine.operations import preview as run

            wish = target_of(stack, target)
            if as_json:
                from divvy.engine.digest import preview_digest, silent

                summary = run(wish, silent(), program)
            else:
                with _watching(preview=True) as watcher:
                    summary = run(wish, watcher, program)
        if as_json:
            typer.echo(json.dumps(preview_digest(summary), indent=1))
        else:
            _conclude(summary, preview=True, diff=diff)
            _show_topology(summary, stack)
        _exit_after_preview(summary, expect_no_changes=expect_no_changes)


def up(
    stack: _Stack,
    *,
    yes: _Yes = False,
    target: _Targets = None,
    skip_preview: _Skip = False,
    expect_no_changes: _Expect = False,
    diff: _Diff = False,
) -> None:
    """Bring the cluster to what the stack file says."""
    with plain_errors():
        if not (skip_preview or yes) or expect_no_changes:
            with _program() as program:
                from divvy.engine.operations import preview as run_preview

                with _watching(preview=True) as watcher:
                    planned = run_preview(target_of(stack, target), watcher, program)
            _conclude(planned, preview=True, diff=diff)
            if planned.failures or (expect_no_changes and planned.changes):
                raise typer.Exit(1)
            if not planned.changes:
                return
            _show_topology(planned, stack)
            confirm(yes=yes, question="Perform these changes?")
        with _program() as program:
            from divvy.engine.operations import up as run

            with _watching(preview=False) as watcher:
                summary = run(target_of(stack, target), watcher, program)
        if yes:
            _show_topology(summary, stack)
        _conclude(summary, preview=False, diff=diff)
        if summary.failures:
            raise typer.Exit(1)
        from divvy.cli.topology import wait_advertised

        told = wait_advertised(summary, stack)
        if told:
            typer.echo(told)


def destroy(stack: _Stack, *, yes: _Yes = False, target: _Targets = None) -> None:
    """Delete everything the stack has in the cluster; the stack itself stays."""
    with plain_errors():
        from divvy.engine.operations import destroy as run

        wish = target_of(stack, target)
        confirm(yes=yes, question=f"Delete everything of the stack {stack}?")
        with _watching(preview=False) as watcher:
            summary = run(wish, watcher)
        _conclude(summary, preview=False, diff=False)
        if summary.failures:
            raise typer.Exit(1)


def refresh(stack: _Stack, *, yes: _Yes = False, target: _Targets = None) -> None:
    """Read what the cluster really has into the stack's state; exit code 2 when it differed."""
    with plain_errors():
        from divvy.engine.operations import refresh as run

        wish = target_of(stack, target)
        confirm(yes=yes, question="Take the cluster's state into the stack's?")
        with _watching(preview=False) as watcher:
            summary = run(wish, watcher)
        _conclude(summary, preview=False, diff=False)
        if summary.failures:
            raise typer.Exit(1)
        if summary.changes:
            raise typer.Exit(2)


def cancel(stack: _Stack, *, yes: _Yes = False) -> None:
    """Remove the locks of a run that is gone."""
    with plain_errors():
        from divvy.engine.project import backend_root
        from divvy.engine.state.lock import break_locks

        wish = target_of(stack)
        confirm(yes=yes, question="Break the stack's lock? A run that is alive would be disturbed.")
        count = break_locks(backend_root(wish.project) / ".pulumi", wish.project.name, wish.stack)
        typer.echo(f"{count} lock(s) removed")


@contextlib.contextmanager
def _program() -> Iterator[Program]:
    """Start the program's process first: it loads the SDK while the engine is imported."""
    from divvy.engine.program import Program
    from divvy.engine.project import find_project

    program = Program(find_project(Path.cwd()))
    try:
        yield program
    finally:
        program.close()


def target_of(stack: str, targets: list[str] | None = None) -> Target:
    """Return a stack of the project around the current directory."""
    from divvy.engine.operations import Target
    from divvy.engine.project import find_project

    return Target(find_project(Path.cwd()), stack, frozenset(targets or ()))


@contextlib.contextmanager
def _watching(*, preview: bool) -> Iterator[Watcher]:
    from divvy.engine.display import PlainDisplay, RunConsole, TreeDisplay

    console = RunConsole(stderr=True)
    if console.is_terminal:
        with TreeDisplay(console, preview=preview) as display:
            yield display
    else:
        yield PlainDisplay(RunConsole(), preview=preview)


def _conclude(summary: Summary, *, preview: bool, diff: bool) -> None:
    from divvy.engine.display import summary_lines
    from divvy.engine.urn import urn_name
    from divvy.engine.values import masked

    if diff:
        from divvy.engine.digest import diff_lines

        for step in summary.steps:
            for line in diff_lines(step):
                typer.echo(line)
    for urn, text in summary.failures.items():
        typer.echo(f"failed: {urn_name(urn) if '::' in urn else urn}: {text}", err=True)
    for line in summary_lines(summary, preview=preview):
        typer.echo(line)
    if not preview and not summary.failures:
        for name, value in masked(dict(summary.outputs)).items():
            if isinstance(value, (str, int, float, bool)):
                typer.echo(f"  {name}: {value}")


def _show_topology(summary: Summary, stack: str) -> None:
    from divvy.cli.topology import topology

    view = topology(summary, stack)
    if view is not None:
        from rich.console import Console

        console = Console()
        console.print()
        console.print(view)
        console.print()


def _exit_after_preview(summary: Summary, *, expect_no_changes: bool) -> None:
    if summary.failures or (expect_no_changes and summary.changes):
        raise typer.Exit(1)
    if summary.changes:
        raise typer.Exit(2)


def confirm(*, yes: bool, question: str) -> None:
    """Ask, unless told not to; without a terminal say how to go on."""
    if yes:
        return
    if not sys.stdin.isatty():
        typer.echo("divvy: not a terminal: say --yes to go on without being asked", err=True)
        raise typer.Exit(1)
    if not typer.confirm(question):
        typer.echo("nothing was changed")
        raise typer.Exit(0)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turn the engine's errors into one sentence on stderr and exit code 1."""
    from divvy.engine.errors import EngineError

    try:
        yield
    except EngineError as error:
        typer.echo(f"divvy: {error}", err=True)
        raise typer.Exit(1) from None
