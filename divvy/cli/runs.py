"""The shared parts of runs: checks before, display, and exit codes."""

import contextlib
import json
from typing import Any

import typer
from rich.console import Console

from divvy.cli.confirm import confirm
from divvy.cli.errors import CHANGES, FAILED, INTERRUPTED
from divvy.cli.target import target_of
from divvy.engine import operations
from divvy.engine.digest import diff_lines, preview_digest
from divvy.engine.display import Display, RunConsole, printable_lines, summary_lines
from divvy.engine.program import Program
from divvy.engine.urn import urn_name
from divvy.engine.values import masked
from divvy.engine.watcher import SILENT, Summary, Watcher
from divvy.stack.config import stack_config
from divvy.stack.errors import StackError
from divvy.stack.file import read_path
from divvy.stack.keys import CLUSTER


def run_preview(
    program: Program,
    stack: str,
    as_json: bool,
    expect_no_changes: bool,
    diff: bool,
) -> None:
    """Preview a stack and show what would change; exits with CHANGES where something would."""
    target = target_of(stack)
    _check_platforms(target)
    _check_claims(target, preview=True)
    _check_rungs(target)
    if as_json:
        summary = operations.preview(target, SILENT, program)
        typer.echo(json.dumps(preview_digest(summary), indent=1))
    else:
        summary = operations.preview(target, watching(preview=True), program)
        _show(summary, preview=True, diff=diff)
        _show_topology(summary, stack)
    if summary.failures or (expect_no_changes and summary.changes):
        raise typer.Exit(FAILED)
    if summary.changes:
        raise typer.Exit(CHANGES)


def preview_and_confirm(
    program: Program,
    stack: str,
    yes: bool,
    expect_no_changes: bool,
    diff: bool,
) -> bool:
    """Preview an update and ask whether to go on; tell whether there is something to do."""
    target = target_of(stack)
    _check_platforms(target)
    _check_claims(target)
    _check_rungs(target)
    planned = operations.preview(target, watching(preview=True), program)
    conclude(planned, preview=True, diff=diff)
    if expect_no_changes and planned.changes:
        raise typer.Exit(FAILED)
    if not planned.changes and not planned.recorded:
        # With nothing to confirm: `up` may still have to look at the nodes.
        return target.store().unsettled_path.exists()
    _show_topology(planned, stack)
    what = "Perform these changes?" if planned.changes else "Record changed options and outputs?"
    confirm(yes=yes, question=what)
    return True


def run_up(program: Program, stack: str, yes: bool, diff: bool, *, wait: bool) -> None:
    """Update a stack, then wait until the nodes advertise what its plan says.

    Exits with CHANGES where nodes still differ: a pipeline must not go on as if they did not. Nor
    when it tries again, and nothing is left to change: the stack is marked before the wait, so
    that the next run looks at the nodes also if this one is killed.
    """
    target = target_of(stack)
    _check_claims(target)
    if yes:  # else they were told before the question
        _check_platforms(target)
        _check_rungs(target)
    summary = operations.up(target, watching(preview=False), program)
    if yes:
        _show_topology(summary, stack)
    unsettled = target.store().unsettled_path
    if summary.changes:  # also of a run that failed, or was interrupted, after some steps
        unsettled.touch()
    conclude(summary, preview=False, diff=diff)
    if wait and unsettled.exists():
        # Loads the model, which a run without changes does not need.
        from divvy.cli.topology import wait_advertised  # noqa: PLC0415

        advertised = wait_advertised(summary, stack)
        if advertised is not None:
            typer.echo(advertised.words)
            if advertised.differs:
                raise typer.Exit(CHANGES)
        unsettled.unlink()


def check_claims_go(target: operations.Target) -> None:
    """Refuse to take the driver of claims away from pods that hold some."""
    if not _deployed_claims(target):
        return
    path = target.project.stack_path(target.stack)
    from divvy.cli.claims_checks import check_held  # noqa: PLC0415
    from divvy.stack.sections import read_cluster  # noqa: PLC0415

    with contextlib.suppress(StackError):
        check_held(read_cluster(read_path(path)), preview=False)


def _check_claims(target: operations.Target, *, preview: bool = False) -> None:
    """Refuse what a cluster cannot do for claims, while nothing has changed yet."""
    path = target.project.stack_path(target.stack)
    # Most stacks have no claims, and their runs need not load the model.
    if not (_asks_for_claims(target) or _deployed_claims(target)):
        return
    from divvy.cli.claims_checks import check_claims  # noqa: PLC0415
    from divvy.stack.sections import read_cluster  # noqa: PLC0415

    with contextlib.suppress(StackError):  # the program reports what is wrong with the file
        check_claims(read_cluster(read_path(path)), preview=preview)


def _check_rungs(target: operations.Target) -> None:
    """Warn of nodes that keep memory limits by a weaker means than a profile allows."""
    path = target.project.stack_path(target.stack)
    with contextlib.suppress(StackError):  # the run reports what is wrong with the file
        file = read_path(path)
        # Few stacks name one, and the runs of others need not load the model.
        if "enforcement" not in file.text:
            return
        from divvy.cli.rung_check import warn_of_weaker_rungs  # noqa: PLC0415
        from divvy.stack.sections import read_cluster  # noqa: PLC0415

        warn_of_weaker_rungs(read_cluster(file))


def _check_platforms(target: operations.Target) -> None:
    """Refuse an image that does not run on nodes of a pool."""
    from divvy.cli.platform_check import check_platforms  # noqa: PLC0415

    path = target.project.stack_path(target.stack)
    # The program reports what is wrong with the file.
    with contextlib.suppress(StackError, ValueError, AttributeError, TypeError):
        check_platforms(path, _written_cluster(target))


def _written_cluster(target: operations.Target) -> Any:
    """Return the stack file's `divvy:cluster` as it is written; raises StackError, ValueError."""
    return json.loads(stack_config(target.project, target.stack).values.get(CLUSTER, "{}"))


def _asks_for_claims(target: operations.Target) -> bool:
    """Tell whether a rule of a profile in the stack file has `claims`."""
    with contextlib.suppress(StackError, ValueError, AttributeError):
        cluster = _written_cluster(target)
        profiles = (cluster.get("profiles") or {}).values()
        rules = [
            rule
            for profile in profiles
            for rule in (profile if isinstance(profile, list) else [profile])
        ]
        return any("claims" in rule for rule in rules if isinstance(rule, dict))
    return False  # the program reports what is wrong with the file


def _deployed_claims(target: operations.Target) -> bool:
    """Tell whether the stack has device classes in its cluster."""
    return operations.has_kind(target, "DeviceClass")


def watching(*, preview: bool) -> Watcher:
    """Return what shows a run while it goes."""
    return Display(RunConsole(), preview=preview)


def conclude(summary: Summary, *, preview: bool, diff: bool) -> None:
    """Show how a run ended; exits with FAILED where a step failed, or with INTERRUPTED."""
    _show(summary, preview=preview, diff=diff)
    if summary.failures:
        raise typer.Exit(INTERRUPTED if summary.interrupted else FAILED)


def _show(summary: Summary, *, preview: bool, diff: bool) -> None:
    if diff:
        for step in summary.steps:
            for line in diff_lines(step):
                typer.echo(line)
    for urn, text in summary.failures.items():
        name = urn_name(urn) if "::" in urn else urn
        typer.echo(printable_lines(f"failed: {name}: {text}"), err=True)
    for line in summary_lines(summary, preview=preview):
        typer.echo(line)
    if not preview and not summary.failures:
        for name, value in masked(dict(summary.outputs)).items():
            if isinstance(value, (str, int, float, bool)):
                typer.echo(printable_lines(f"  {name}: {value}"))


def _show_topology(summary: Summary, stack: str) -> None:
    if not summary.changes:
        return
    # Loads the model, which a run without changes does not need.
    from divvy.cli.topology import topology  # noqa: PLC0415

    view = topology(summary, stack)
    if view is not None:
        console = Console()
        console.print()
        console.print(view)
        console.print()
