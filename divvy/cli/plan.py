"""divvy plan: what a cluster will advertise."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.console import RenderableType

from divvy.cli.options import OutFile, StackName, StackPath, named_stack
from divvy.cli.output import Format, write
from divvy.plan import Plan
from divvy.plan import plan as predict
from divvy.plan.predict.node_templates import node_templates
from divvy.plan.quota.kueue_quota import kueue_quota
from divvy.render.exports.kueue import kueue_objects
from divvy.render.exports.node_templates import node_objects
from divvy.render.views.markdown import plan_markdown
from divvy.render.views.page import plan_page
from divvy.render.views.plan_json import plan_json
from divvy.render.views.terminal import plan_text
from divvy.stack.file import read_stack
from divvy.stack.sections import read_cluster


class PlanFormat(StrEnum):
    """How a plan is shown: to people and scripts, or to autoscalers."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    HTML = "html"
    SLICES = "slices"
    KUEUE = "kueue"


def plan(
    stack: StackName = None,
    file: StackPath = None,
    output: Annotated[
        PlanFormat,
        typer.Option(
            "-o",
            "--output",
            help="Format; slices describes a node of each pool to an autoscaler, kueue its quota.",
        ),
    ] = PlanFormat.TEXT,
    out: OutFile = None,
) -> None:
    """Predict what every node will advertise and guarantee; nothing is touched."""
    source = read_stack(named_stack(stack, file), file)
    cluster = read_cluster(source)
    predicted = predict(cluster, source.name)
    if output is PlanFormat.KUEUE:
        write(kueue_objects(kueue_quota(predicted, cluster.names)), out)
        return
    if output is PlanFormat.SLICES:
        write(node_objects(node_templates(predicted)), out)
        return
    write(render_plan(predicted, Format(output.value)), out)


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
