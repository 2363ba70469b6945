"""divvy plan: what a cluster will offer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from divvy.cli.output import Format, reading, write

if TYPE_CHECKING:
    from rich.console import RenderableType

    from divvy.plan import Plan


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="plan")(plan)


def plan(
    stack: Annotated[str | None, typer.Option("-s", "--stack", help="Stack to plan.")] = None,
    file: Annotated[Path | None, typer.Option(help="Stack file to plan.")] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = Format.TEXT,
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Predict what every node will offer and guarantee; nothing is touched."""
    from divvy.cli.stack_files import read_stack
    from divvy.plan import plan as predict

    with reading():
        source = read_stack(stack, file)
    with reading(source):
        cluster = source.cluster()
    write(render_plan(predict(cluster, source.name), output), out)


def render_plan(plan: "Plan", output: Format) -> "str | RenderableType":
    """Return a plan in a format."""
    if output is Format.JSON:
        from divvy.render.plan_json import plan_json

        return plan_json(plan)
    if output is Format.MD:
        from divvy.render.markdown import plan_markdown

        return plan_markdown(plan)
    if output is Format.HTML:
        from divvy.render.page import plan_page

        return plan_page(plan)
    from divvy.render.terminal import plan_text

    return plan_text(plan)
