"""divvy plan: what a cluster will advertise."""

from typing import Annotated

import typer
from rich.console import RenderableType

from divvy.cli.options import OutFile, StackName, StackPath
from divvy.cli.output import Format, write
from divvy.plan import Plan
from divvy.plan import plan as predict
from divvy.render.markdown import plan_markdown
from divvy.render.page import plan_page
from divvy.render.plan_json import plan_json
from divvy.render.terminal import plan_text
from divvy.stack.file import read_stack
from divvy.stack.sections import read_cluster


def plan(
    stack: StackName = None,
    file: StackPath = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = Format.TEXT,
    out: OutFile = None,
) -> None:
    """Predict what every node will advertise and guarantee; nothing is touched."""
    source = read_stack(stack, file)
    write(render_plan(predict(read_cluster(source), source.name), output), out)


def render_plan(plan: Plan, output: Format) -> str | RenderableType:
    """Return a plan in a format."""
    match output:
        case Format.JSON:
            return plan_json(plan)
        case Format.MD:
            return plan_markdown(plan)
        case Format.HTML:
            return plan_page(plan)
        case Format.TEXT:
            return plan_text(plan)
