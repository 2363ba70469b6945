"""divvy stack: the stacks of a project and their state."""

import json
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.confirm import confirm
from divvy.cli.options import Stack, Yes
from divvy.cli.target import target_of
from divvy.engine.errors import EngineError, StateProblem
from divvy.engine.state.lock import locked
from divvy.engine.state.store import StateStore
from divvy.engine.urn import STACK_TYPE
from divvy.engine.values import masked
from divvy.stack.project import find_project

app = typer.Typer(add_completion=False)


@app.command("ls")
def list_stacks() -> None:
    """List the project's stacks and the number of resources of each."""
    for name in find_project(Path.cwd()).stacks():
        store = target_of(name).store()
        try:
            count = len(store.load().resources) if store.exists else None
            state = "not deployed" if count is None else f"{count} resources"
        except EngineError as problem:  # such as another passphrase than the others'
            state = str(problem)
        typer.echo(f"{name:<20} {state}")


@app.command()
def init(name: str) -> None:
    """Make an empty state for a stack that has a configuration file."""
    target = target_of(name)
    target.project.stack_path(name)
    target.store().create()


@app.command()
def rm(
    name: str,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even with resources.")] = False,
    yes: Yes = False,
) -> None:
    """Forget a stack's state; its configuration file stays."""
    store = _store_of(name)
    state = store.load()
    if (state.resources or state.pending) and not force:
        raise StateProblem(f"{name} still has resources: destroy it first, or use --force")
    confirm(yes=yes, question=f"Forget the state of {name}?")
    with locked(store.root, store.project, store.stack):
        store.remove()


@app.command()
def output(stack: Stack, name: str | None = None) -> None:
    """Print the stack's outputs as JSON, or one of them as text."""
    resources = _store_of(stack).load().resources
    root = next((resource for resource in resources if resource.type == STACK_TYPE), None)
    outputs = {} if root is None else masked(dict(root.outputs))
    if name is None:
        typer.echo(json.dumps(outputs, indent=1, sort_keys=True))
    elif name in outputs:
        value = outputs[name]
        text = json.dumps(value, separators=(",", ":"), sort_keys=True)
        typer.echo(value if isinstance(value, str) else text)
    else:
        known = ", ".join(sorted(outputs)) or "none"
        raise StateProblem(f"the stack {stack} has no output {name}; it has: {known}")


@app.command("export")
def export_state(stack: Stack) -> None:
    """Print the stack's deployment as `pulumi stack export` does."""
    store = _store_of(stack)
    state = store.load()
    document = store.encode(state.resources, state.pending)
    deployment = {"version": 3, "deployment": document["checkpoint"]["latest"]}
    typer.echo(json.dumps(deployment, indent=4))


@app.command("import")
def import_state(
    stack: Stack,
    file: Path,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Accept another stack's deployment, and forget a run that died."
        ),
    ] = False,
) -> None:
    """Replace the stack's state by an exported deployment."""
    store = _store_of(stack)
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        document = {"version": raw["version"], "checkpoint": {"latest": raw["deployment"]}}
        state = store.decode(document)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateProblem(f"{file} is not an exported deployment: {error}") from None
    own = f"urn:pulumi:{store.stack}::{store.project}::"
    foreign = [resource.urn for resource in state.resources if not resource.urn.startswith(own)]
    if foreign and not force:
        raise StateProblem(
            f"{file} is the deployment of another stack: it has {foreign[0]}; two stacks with the "
            "same objects delete each other's. Use --force if the other one is gone"
        )
    with locked(store.root, store.project, store.stack):
        if store.journal_path.exists() and not force:
            raise StateProblem(
                f"{store.journal_path} holds the steps of a run that died: `divvy refresh -s "
                f"{stack}` makes them part of the state; --force forgets what they have created"
            )
        store.create()
        store.write(state.resources, state.pending)


def _store_of(stack: str) -> StateStore:
    """Return a stack's state; raises StackError for a stack that has neither state nor file."""
    target = target_of(stack)
    store = target.store()
    if not store.exists:
        target.project.stack_path(stack)
    return store
