"""divvy plan: what a cluster will advertise."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

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


def plan(
    stack: StackName = None,
    file: StackPath = None,
    output: Annotated[
        Literal[Format, "slices", "kueue"],
        typer.Option(
            "-o",
            "--output",
            help="Format; slices describes a node of each pool to an autoscaler, kueue its quota.",
        ),
    ] = "text",
    out: OutFile = None,
) -> None:
    """Predict what every node will advertise and guarantee; nothing is touched."""
    source = read_stack(named_stack(stack, file), file)
    cluster = read_cluster(source)
    predicted = predict(cluster, source.name)
    if output == "kueue":
        write(kueue_objects(kueue_quota(predicted, cluster.names)), out)
    elif output == "slices":
        unknown = [pool.name for pool in predicted.pools if pool.node is None]
        write(node_objects(node_templates(predicted), unknown), out)
    else:
        write(_VIEWS[output](predicted), out)


_VIEWS: Mapping[Format, Callable[[Plan], str | RenderableType]] = {
    "text": plan_text,
    "md": plan_markdown,
    "json": plan_json,
    "html": plan_page,
}
