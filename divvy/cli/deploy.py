"""divvy preview, up and destroy: bring the release in a cluster to what the stack file says."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.text import Text

from divvy.cli.exit_codes import CHANGES, FAILED, INTERRUPTED
from divvy.cli.node_wait import wait_advertised
from divvy.cli.options import Diff, ExpectNoChanges, Stack, Yes
from divvy.deploy.changes import Action, Change, FieldChange
from divvy.deploy.claims_checks import check_claims, check_held, warn_of_lost_classes
from divvy.deploy.clean_up import CleanUp, stays
from divvy.deploy.deployment import Deployment, Look
from divvy.deploy.deployment import Stack as DeployedStack
from divvy.deploy.enforcement_check import warn_of_weaker_rungs
from divvy.deploy.errors import DeployError
from divvy.deploy.helm import Helm, HelmFailed, find_helm
from divvy.deploy.other_agents import AGENTS, nodes_of_others
from divvy.deploy.platform_check import check_platforms
from divvy.deploy.records import Record
from divvy.deploy.waiting import NotReady, Waiting
from divvy.errors import fail
from divvy.image.build import BuildFailed
from divvy.kube.client import Client
from divvy.kube.errors import FORBIDDEN, ApiError, KubeError, Unreachable
from divvy.kube.kind import NODE, POD
from divvy.kube.kubeconfig import IN_POD, ClusterConfig, cluster_config
from divvy.model import Cluster, parse_document
from divvy.model.phrases import plural
from divvy.model.problems import printable
from divvy.plan import diff as cluster_diff
from divvy.plan import plan
from divvy.render.chart import values_of
from divvy.render.views.terminal import difference_text, plan_text
from divvy.stack.file import read_path, stack_path
from divvy.stack.sections import read_document

_Json = Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")]
_Wait = Annotated[bool, typer.Option(help="Wait until the nodes advertise what the plan says.")]
_TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over", help="Go on with what Pulumi, kubectl or another stack has deployed here."
    ),
]
_ForceConflicts = Annotated[
    bool, typer.Option("--force-conflicts", help="Overwrite fields that other managers own.")
]
_KeepNodes = Annotated[
    bool,
    typer.Option("--keep-nodes", help="Leave labels, annotations and files of agents on nodes."),
]
_SIGNS = {
    Action.CREATE: ("+", "green"),
    Action.UPDATE: ("~", "yellow"),
    Action.DELETE: ("-", "red"),
}
_MAX_PATHS = 4
_KEPT = "labels, annotations and files of agents on nodes (--keep-nodes)"


def preview(
    stack: Stack,
    *,
    as_json: _Json = False,
    expect_no_changes: ExpectNoChanges = False,
    diff: Diff = False,
    take_over: _TakeOver = False,
) -> None:
    """Show what `up` would do; exit code 0: nothing, 2: something, 1: an error."""
    with _opened(stack) as run:
        look = run.look(take_over=take_over, is_preview=True)
        if as_json:
            typer.echo(json.dumps(_as_json(look), indent=1))
        else:
            run.show(look, diff=diff)
        if look.is_current:
            return
        raise typer.Exit(FAILED if expect_no_changes else CHANGES)


def up(
    stack: Stack,
    *,
    yes: Yes = False,
    expect_no_changes: ExpectNoChanges = False,
    diff: Diff = False,
    wait: _Wait = True,
    take_over: _TakeOver = False,
    force_conflicts: _ForceConflicts = False,
) -> None:
    """Bring the cluster to the state in the stack file; exit code 2: nodes still differ."""
    with _opened(stack) as run:
        look = run.look(take_over=take_over, is_preview=False)
        run.show(look, diff=diff)
        if look.is_current:
            run.finish(look, wait=wait)
            return
        if expect_no_changes:
            raise typer.Exit(FAILED)
        if not force_conflicts:
            _refuse_conflicts(look)
        _confirm(yes=yes, question=f"Deploy to {run.where()}?")
        with _interruptible(f"divvy up -s {stack}"):
            run.deploy(look, take_over=take_over)
            run.finish(look, wait=wait)


def destroy(stack: Stack, *, yes: Yes = False, keep_nodes: _KeepNodes = False) -> None:
    """Delete everything that the stack has in the cluster, and give its nodes back clean."""
    with _opened(stack) as run:
        run.destroy(yes=yes, keep_nodes=keep_nodes)


class _Run:
    """One command's way through a cluster; each failure is one error."""

    def __init__(self, stack: DeployedStack, config: ClusterConfig, client: Client) -> None:
        self._stack, self._config, self._client = stack, config, client
        self._console = Console()
        self._deployment = Deployment(client, stack, self._report)
        # Before anything is looked at: without it nothing can be done.
        # The current context of a kubeconfig may change while the question is open.
        context = None if config.context == IN_POD else config.context
        self._helm: Helm = find_helm(stack.cluster.kubeconfig, context)

    def look(self, *, take_over: bool, is_preview: bool) -> Look:
        """Make all checks and return what a deployment would change."""
        cluster = self._stack.cluster
        self._refuse_nodes_of_others()
        check_platforms(self._client, cluster)
        look = self._deployment.look(take_over=take_over)
        if cluster.claims or may_have_claims(look.deployed, look.before):
            check_claims(cluster, preview=is_preview)
        deleted = (change.name for change in look.changes if change.action is Action.DELETE)
        warn_of_lost_classes(cluster, deleted)
        warn_of_weaker_rungs(cluster)
        for unknown in look.preview.unknown:
            typer.echo(f"warning: {printable(unknown)}", err=True)
        problems = [*look.preview.problems]
        if others := ", ".join(sorted(look.preview.others)):
            problems.append(
                f"this cluster's Divvy was deployed by {others}: go on with that, or "
                "take it over with --take-over. Taking over restarts no pod; delete nothing"
            )
        if problems:
            fail("\n  ".join(map(printable, problems)))
        return look

    def show(self, look: Look, *, diff: bool) -> None:
        """Print the changes of objects, then those of what nodes advertise."""
        for change in look.changes:
            self._print_change(change, diff=diff)
        if look.values:
            typer.echo(
                f"warning: values set on the release by hand are reset: "
                f"{printable(', '.join(look.values))}",
                err=True,
            )
        if look.newest and not look.newest.is_deployed:
            typer.echo(f"revision {look.newest.revision} is {printable(look.newest.status)}")
        if look.former_stack:
            typer.echo(
                f"release {look.release.name} becomes stack {self._stack.name}'s: it is of stack "
                f"{printable(look.former_stack)}"
            )
        if look.image.build is not None:
            typer.echo(f"the agent's image is built: {look.image.reference.partition('@')[0]}")
        counts = [
            f"{plural(number, 'object')} to {action}"
            for action in Action
            if (number := sum(change.action is action for change in look.changes))
        ]
        typer.echo(", ".join([*counts, f"{look.preview.unchanged} unchanged"]))
        view = _topology(look, self._stack)
        if view is not None:
            self._console.print()
            self._console.print(view)
            self._console.print()

    def deploy(self, look: Look, *, take_over: bool) -> None:
        """Deploy, and wait for the pods."""
        self._deployment.deploy(self._helm, look, take_over=take_over)
        typer.echo(f"release {look.release.name} in namespace {look.release.namespace} is deployed")

    def finish(self, look: Look, *, wait: bool) -> None:
        """Wait for pods, then for nodes; exits with CHANGES where nodes still differ."""
        waiting = Waiting(self._client, self._report)
        failures = []
        for name in self._deployment.workloads(look.image):
            try:
                waiting.until_ready(name)
            except NotReady as reason:
                failures.append(str(reason))
        if failures:
            fail("\n".join(map(_printable_lines, failures)))
        if not wait:
            return
        advertised = wait_advertised(self._stack.cluster, self._stack.name, self._report)
        typer.echo(advertised.words)
        if advertised.differs:
            raise typer.Exit(CHANGES)

    def destroy(self, *, yes: bool, keep_nodes: bool) -> None:
        """Uninstall and clean nodes up, after asking."""
        cluster = self._stack.cluster
        deployed = self._deployment.deployed
        renamed = f"divvy up -s {self._stack.name} --take-over"
        self._deployment.refuse_another_stack(f"make it this one's first: {renamed}")
        if deployed is None:
            if others := self._deployment.whose_agents():
                fail(
                    f"namespace {cluster.namespace} has a Divvy that Helm has not deployed "
                    f"({others}): remove it with what deployed it"
                )
            if not self._deployment.is_anything_left():
                typer.echo(f"nothing of Divvy is deployed in {self.where()}")
                return
        before = self._deployment.cluster_of(deployed)
        if deployed is None or may_have_claims(deployed, before):
            check_held(cluster, preview=False)
        warn_of_lost_classes(cluster, self._deployment.deletable())
        _confirm(yes=yes, question=f"Delete Divvy from {self.where()}?")
        with _interruptible(f"divvy destroy -s {self._stack.name}"):
            self._remove(before or cluster, keep_nodes=keep_nodes)

    def _remove(self, before: Cluster, *, keep_nodes: bool) -> None:
        clean_up = CleanUp(self._client, self._stack.cluster.namespace, self._report)
        for name in self._deployment.destroy(self._helm):
            typer.echo(f" - {name}")
        left = clean_up.until_pods_have_ended()
        left += [_KEPT] if keep_nodes else clean_up.run()
        kept = self._deployment.namespace.remove()
        typer.echo(f"deleted{f'; {kept}' if kept else ''}")
        for words in (*left, *stays(before)):
            typer.echo(f"stays: {printable(words)}")

    def where(self) -> str:
        """Return the cluster in words: release, server, context, number of nodes."""
        release = self._deployment.release
        try:
            pages = self._client.pages(NODE.path(""))
            nodes = sum(len(page.items) + len(page.skipped) for page in pages)
        except ApiError:
            number = "an unknown number of nodes"
        else:
            number = plural(nodes, "node")
        context = f", context {self._config.context}" if self._config.context else ""
        return (
            f"{self._config.server}{context} ({number}), release {release.name} in namespace "
            f"{release.namespace}"
        )

    def _refuse_nodes_of_others(self) -> None:
        try:
            query = {"labelSelector": AGENTS}
            pages = list(self._client.pages(POD.path(""), query))
            agents = [pod for page in pages for pod in page.items]
            own = self._stack.cluster.namespace
            unread = [name for page in pages for name in page.skipped]
            unread = [name for name in unread if not name.startswith(f"{own}/")]
            if not unread and all(pod["metadata"]["namespace"] == own for pod in agents):
                return
            pages = list(self._client.pages(NODE.path("")))
            nodes = [node for page in pages for node in page.items]
            unread += [f"node {name}" for page in pages for name in page.skipped]
        except ApiError as refusal:
            if refusal.code != FORBIDDEN:
                raise
            typer.echo(
                f"warning: it is not known whether another Divvy serves these nodes: {refusal}",
                err=True,
            )
            return
        if unread:
            typer.echo(
                "warning: it is not known whether another Divvy serves these nodes: "
                f"{printable(', '.join(unread))} cannot be read",
                err=True,
            )
        problem = nodes_of_others(self._stack.cluster, agents, nodes)
        if problem is not None:
            fail(problem)

    def _print_change(self, change: Change, *, diff: bool) -> None:
        sign, colour = _SIGNS[change.action]
        line = Text(f"{sign:>2} ", style=colour)
        kind, _, place = str(change.name).partition(" ")
        line.append(f"{kind} ", style="dim")
        line.append(place, style="bold")
        paths = [field.path for field in change.fields]
        if paths:
            more = ", …" if len(paths) > _MAX_PATHS else ""
            line.append(f"  ({', '.join(paths[:_MAX_PATHS])}{more})")
        if change.managers:
            line.append(f"  changed by {', '.join(sorted(set(change.managers.values())))}")
        self._console.print(line, highlight=False, soft_wrap=True)
        for field in change.fields if diff else ():
            typer.echo(_field_line(field))

    def _report(self, text: str) -> None:
        typer.echo(f" … {_printable_lines(text)}", err=True)


@contextmanager
def _opened(name: str) -> Iterator[_Run]:
    path = stack_path(name)
    file = read_path(path)
    file.refuse_duplicates()
    stack = DeployedStack(name, path, read_document(file))
    config = cluster_config(stack.cluster.kubeconfig, stack.cluster.context)
    try:
        with Client(config, note=cache(_warn)) as client:
            yield _Run(stack, config, client)
    except Unreachable as error:
        fail(f"the cluster cannot be reached: {config.server}: {error}")
    except ApiError as error:
        fail(f"the cluster refuses a request: {error}")
    except (DeployError, HelmFailed, BuildFailed, KubeError) as error:
        fail(str(error))


@contextmanager
def _interruptible(command: str) -> Iterator[None]:
    """Tell whoever interrupts a change how to go on with it."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"\nInterrupted; nothing is lost. Run `{command}` again to go on.", err=True)
        raise typer.Exit(INTERRUPTED) from None


def _confirm(*, yes: bool, question: str) -> None:
    """Ask for confirmation unless ``yes``; raises CommandError without a terminal."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("not a terminal: use --yes to go on without being asked")
    if not typer.confirm(question):
        typer.echo("nothing was changed")
        raise typer.Exit(0)


def _warn(unread: str) -> None:
    typer.echo(f"warning: not read: {printable(unread)}", err=True)


def _refuse_conflicts(look: Look) -> None:
    lines = [
        f"{change.name}: {field} is owned by {manager}"
        for change in look.changes
        for field, manager in change.conflicts.items()
    ]
    if lines:
        listed = "\n  ".join(map(printable, lines))
        fail(
            f"other field managers own fields of Divvy's objects:\n  {listed}\n"
            "stop them from writing these, or overwrite them with --force-conflicts"
        )


def _topology(look: Look, stack: DeployedStack) -> RenderableType | None:
    """Return what changes on the nodes, the whole plan for a first deployment."""
    if look.is_current:
        return None
    if look.before is None:
        return plan_text(plan(stack.cluster, stack.name))
    # As a chart has it: without what the release does not record, the build of the image.
    after = parse_document(values_of(stack.document)).cluster
    difference = cluster_diff(plan(look.before, f"{stack.name} now"), plan(after, stack.name))
    return difference_text(difference) if difference else None


def _as_json(look: Look) -> dict[str, Any]:
    return {
        "release": look.release.name,
        "namespace": look.release.namespace,
        "revision": look.deployed.revision if look.deployed else None,
        "image": {"reference": look.image.reference, "build": look.image.build is not None},
        "changes": [
            {
                "action": change.action.value,
                "kind": change.name.kind,
                "namespace": change.name.namespace,
                "name": change.name.name,
                "fields": [field.path for field in change.fields],
                "managers": sorted(set((change.managers or {}).values())),
            }
            for change in look.changes
        ],
        "values": list(look.values),
        "unchanged": look.preview.unchanged,
        "unknown": list(look.preview.unknown),
    }


def may_have_claims(deployed: Record | None, before: Cluster | None) -> bool:
    """Return whether what is deployed has claims; of what cannot be read nobody knows it."""
    return deployed is not None and (before is None or bool(before.claims))


def _field_line(field: FieldChange) -> str:
    return f"      {field.path}: {_short(field.before)} → {_short(field.after)}"


def _short(value: Any) -> str:
    text = printable(value if isinstance(value, str) else json.dumps(value))
    return text if len(text) <= 100 else f"{text[:97]}..."


def _printable_lines(text: str) -> str:
    """Return a text from outside, such as a container's log, without what drives a terminal."""
    return "\n".join(map(printable, text.splitlines()))
