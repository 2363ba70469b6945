"""divvy diff: what changes between two stack files, or between a file and the live nodes."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from divvy.cli.errors import CHANGES, fail
from divvy.cli.live import show_live
from divvy.cli.options import OutFile
from divvy.cli.output import Format, write
from divvy.plan import Difference, plan
from divvy.plan import diff as compare
from divvy.render.markdown import difference_markdown
from divvy.render.page import difference_page
from divvy.render.plan_json import difference_json
from divvy.render.terminal import difference_text
from divvy.stack.file import stack_path
from divvy.stack.revisions import read_side
from divvy.stack.sections import read_cluster


def diff(
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B", help="A file, a stack, REV:path, or REV of the other side's file."
        ),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("-s", "--stack", help="Stack for --live, or for two revisions.")
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Compare one stack file with what the nodes advertise."),
    ] = False,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = Format.TEXT,
    out: OutFile = None,
) -> None:
    """Show what changes; exit code 0: nothing, 2: something, 1: an error."""
    given = list(sides or ())
    changed = (
        _with_live(given, stack, output, out) if live else _with_file(given, stack, output, out)
    )
    raise typer.Exit(CHANGES if changed else 0)


def _with_live(given: list[str], stack: str | None, output: Format, out: Path | None) -> bool:
    if len(given) + bool(stack) != 1:
        fail("--live compares one stack file with the cluster: name it, or use -s <stack>")
    source = read_side(given[0] if given else str(stack), None)
    return show_live(read_cluster(source), source.name, output, out)


def _with_file(given: list[str], stack: str | None, output: Format, out: Path | None) -> bool:
    if stack is not None and len(given) == 1:
        given.append(str(stack_path(stack)))
    if len(given) != 2:
        fail("give two sides to compare: files, stacks, REV:path, or REV")
    # Two revisions of the stack that -s names.
    path = str(stack_path(stack)) if stack is not None else None
    older = read_side(given[0], path or given[1])
    newer = read_side(given[1], path or given[0])
    before = plan(read_cluster(older), older.name)
    after = plan(read_cluster(newer), newer.name)
    difference = compare(before, after)
    write(render_difference(difference, output), out)
    return bool(difference)


def render_difference(difference: Difference, output: Format) -> str | RenderableType:
    """Return a diff in a format."""
    match output:
        case Format.JSON:
            return difference_json(difference)
        case Format.MD:
            return difference_markdown(difference)
        case Format.HTML:
            return difference_page(difference)
        case Format.TEXT:
            return difference_text(difference)
