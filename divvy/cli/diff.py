"""divvy diff: what changes between two stack files, or between a file and the live nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divvy.cli.output import Format, fail, reading, write

if TYPE_CHECKING:
    from rich.console import RenderableType

    from divvy.plan import Difference

CHANGES = 2


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="diff")(diff)


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
        bool, typer.Option("--live", help="Compare one stack file with what the nodes offer.")
    ] = False,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = Format.TEXT,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Show what changes; exit code 0: nothing, 2: something, 1: an error."""
    from divvy.cli.stack_files import read_side, stack_path
    from divvy.plan import diff as compare
    from divvy.plan import plan

    given = list(sides or ())
    if live:
        from divvy.cli.live import show_live

        with reading():
            if len(given) + bool(stack) != 1:
                fail("--live compares one stack file with the cluster: name it, or use -s <stack>")
            source = read_side(given[0] if given else str(stack), None)
        with reading(source):
            cluster = source.cluster()
        found = show_live(cluster, source.name, output, out)
    else:
        with reading():
            if stack is not None and len(given) == 1:
                given.append(str(stack_path(stack)))
            if len(given) != 2:
                fail("give two sides to compare: files, stacks, REV:path, or REV")
            # Two revisions of the stack that -s names.
            path = str(stack_path(stack)) if stack is not None else None
            older = read_side(given[0], path or given[1])
            newer = read_side(given[1], path or given[0])
        with reading(older):
            before = plan(older.cluster(), older.name)
        with reading(newer):
            after = plan(newer.cluster(), newer.name)
        difference = compare(before, after)
        write(render_difference(difference, output), out)
        found = bool(difference)
    raise typer.Exit(CHANGES if found else 0)


def render_difference(difference: "Difference", output: Format) -> "str | RenderableType":
    """Return a diff in a format."""
    if output is Format.JSON:
        from divvy.render.plan_json import difference_json

        return difference_json(difference)
    if output is Format.MD:
        from divvy.render.markdown import difference_markdown

        return difference_markdown(difference)
    if output is Format.HTML:
        from divvy.render.page import difference_page

        return difference_page(difference)
    from divvy.render.terminal import difference_text

    return difference_text(difference)
