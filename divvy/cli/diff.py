"""divvy diff: what changes between two stack files, or between a file and the live nodes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType

from divvy.cli.exit_codes import CHANGES
from divvy.cli.options import OutFile, named_stack, stack_names
from divvy.cli.output import Format, write
from divvy.errors import fail
from divvy.live.advertised import live_nodes
from divvy.live.cluster_reader import ClusterReader, NotAllowed, reading
from divvy.live.live_diff import compare_live
from divvy.live.node_moves import NodeMove
from divvy.live.node_moves_reader import NodeMovesReader
from divvy.model import Cluster
from divvy.plan import Difference, Plan, plan
from divvy.plan import diff as compare
from divvy.plan.review.object_changes import object_changes
from divvy.plan.review.review import Review
from divvy.render.objects.cluster import objects
from divvy.render.views.live_diff import live_json, live_text
from divvy.render.views.markdown import difference_markdown, review_markdown
from divvy.render.views.page import difference_page
from divvy.render.views.plan_json import difference_json, review_json
from divvy.render.views.terminal import difference_text, review_text
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path, stack_path
from divvy.stack.project import find_project
from divvy.stack.revisions import read_side, stacks_at
from divvy.stack.sections import read_cluster, read_document


def diff(
    sides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="A B",
            help="A file, a stack, REV:path, or REV of the other side's file.",
            autocompletion=stack_names,
        ),
    ] = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "-s",
            "--stack",
            help="Stack for --live (or that of PULUMI_STACK), or for two revisions.",
            autocompletion=stack_names,
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="Compare one stack file with what the nodes advertise."),
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all", help="Compare every stack file of revision A with the folder's, or with B's."
        ),
    ] = False,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = "text",
    out: OutFile = None,
) -> None:
    """Show what changes; exit code 0: nothing, 2: something, 1: an error."""
    given = list(sides or ())
    if every and (live or stack is not None):
        fail("--all compares the files of all stacks: leave out --live and -s")
    compare_sides = _with_all if every else partial(_with_live if live else _with_file, stack)
    raise typer.Exit(CHANGES if compare_sides(given, output, out) else 0)


def _with_all(given: list[str], output: Format, out: Path | None) -> bool:
    if len(given) not in (1, 2):
        fail("--all compares a revision with the folder's stack files, or with another revision's")
    project = find_project(Path.cwd())
    older = stacks_at(given[0], project)
    newer = (
        {name: read() for name, read in stacks_at(given[1], project).items()}
        if len(given) == 2
        else {name: read_path(project.stack_path(name)) for name in project.stacks()}
    )
    if not older and not newer:
        fail(f"there is no stack file to compare: none in {project.stack_folder}, none before")
    differences, invalid = [], {}
    for name, file in newer.items():
        try:
            before = _side(older[name]()) if name in older else None
        except StackError as error:
            # The change that repairs a file is reviewed as well.
            invalid[name] = str(error)
        else:
            differences.append(_difference(before, _side(file)))
    deleted = tuple(name for name in older if name not in newer)
    review = Review(tuple(differences), deleted, invalid)
    write(_render_review(review, output), out)
    return bool(review)


def _render_review(review: Review, output: Format) -> str | RenderableType:
    if output == "html":
        fail("--all writes -o text, md or json: a page of HTML shows one stack")
    if output == "json":
        return review_json(review)
    return review_markdown(review) if output == "md" else review_text(review)


def _with_live(stack: str | None, given: list[str], output: Format, out: Path | None) -> bool:
    if not given:
        stack = named_stack(stack, None)
    if len(given) + bool(stack) != 1:
        fail("--live compares one stack file with the cluster: name it, or use -s <stack>")
    source = read_side(given[0] if given else str(stack), None)
    return _show_live(read_cluster(source), source.name, output, out)


def _with_file(stack: str | None, given: list[str], output: Format, out: Path | None) -> bool:
    if stack is not None and len(given) == 1:
        given.append(str(stack_path(stack)))
    if len(given) != 2:
        fail("give two sides to compare: files, stacks, REV:path, or REV")
    # Two revisions of the stack that -s names.
    path = str(stack_path(stack)) if stack is not None else None
    older = read_side(given[0], path or given[1])
    newer = read_side(given[1], path or given[0])
    difference = _difference(_side(older), _side(newer))
    write(_VIEWS[output](difference), out)
    return bool(difference)


@dataclass(frozen=True)
class _Side:
    """What a stack file says: what its nodes offer, and its objects."""

    plan: Plan
    objects: Sequence[dict[str, Any]]


def _side(file: StackFile) -> _Side:
    """Read a stack file; raises StackError."""
    document = read_document(file)
    plugin = document.cluster.plugin
    # The image is known by its section only, before it is built.
    image = "" if plugin is None else plugin.model_dump_json()
    return _Side(plan(document.cluster, file.name), objects(document, image))


def _difference(before: _Side | None, after: _Side) -> Difference:
    """Compare two stack files; None is that of a stack that is new."""
    before = before or _Side(Plan("nothing", ()), ())
    return compare(before.plan, after.plan, object_changes(before.objects, after.objects))


_VIEWS: Mapping[Format, Callable[[Difference], str | RenderableType]] = {
    "text": difference_text,
    "md": difference_markdown,
    "json": difference_json,
    "html": difference_page,
}


def _show_live(cluster: Cluster, name: str, output: Format, out: Path | None) -> bool:
    """Compare the live nodes with a cluster's file and show it; tell whether they differ."""
    if output not in ("text", "json"):
        fail(f"--live supports -o text and json, not {output}")
    nodes = live_nodes(cluster, cluster.kubeconfig, cluster.context)
    difference = compare_live(cluster, name, nodes)
    with reading(cluster.kubeconfig, cluster.context) as reader:
        moves = _moves(reader, cluster)
    as_json = output == "json"
    write(live_json(difference, moves) if as_json else live_text(difference, moves), out)
    return bool(difference)


def _moves(reader: ClusterReader, cluster: Cluster) -> tuple[NodeMove, ...]:
    """Return the nodes that move to or from claims; whoever may not read the pods sees none."""
    try:
        return NodeMovesReader(reader, cluster).moves()
    except NotAllowed as refusal:
        typer.echo(f"which nodes move to or from claims is not shown: {refusal}", err=True)
        return ()
