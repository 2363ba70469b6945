"""divvy stack and divvy config: the stacks of a project, their state and configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

_Stack = Annotated[str, typer.Option("--stack", "-s", envvar="PULUMI_STACK", help="The stack.")]

stack_app = typer.Typer(name="stack", help="Stacks and their state.", no_args_is_help=True)
config_app = typer.Typer(name="config", help="A stack's configuration.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands to divvy."""
    app.add_typer(stack_app)
    app.add_typer(config_app)


@stack_app.command("ls")
def list_stacks() -> None:
    """List the project's stacks, the time of the last update and the number of resources."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.project import find_project

        folder = find_project(Path.cwd()).stack_folder
        for path in sorted(folder.glob("Pulumi.?*.yaml")):
            name = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
            store = target_of(name).store()
            count = len(store.load().resources) if store.exists else None
            typer.echo(f"{name:<20} {'not deployed' if count is None else f'{count} resources'}")


@stack_app.command()
def init(name: str) -> None:
    """Make an empty state for a stack that has a configuration file."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.project import stack_config

        wish = target_of(name)
        stack_config(wish.project, name)
        wish.store().create()


@stack_app.command()
def rm(
    name: str,
    *,
    force: Annotated[bool, typer.Option("--force", help="Even with resources.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Forget a stack's state; its configuration file stays."""
    from divvy.cli.deploy import confirm, plain_errors, target_of

    with plain_errors():
        from divvy.engine.errors import StateProblem

        store = target_of(name).store()
        if store.exists and store.load().resources and not force:
            raise StateProblem(f"{name} still has resources: destroy it first, or say --force")
        confirm(yes=yes, question=f"Forget the state of {name}?")
        store.remove()


@stack_app.command()
def output(stack: _Stack, name: str | None = None) -> None:
    """Print the stack's outputs as JSON, or one of them as text."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.errors import StateProblem
        from divvy.engine.urn import STACK_TYPE
        from divvy.engine.values import masked

        resources = target_of(stack).store().load().resources
        root = next((found for found in resources if found.type == STACK_TYPE), None)
        outputs = {} if root is None else masked(dict(root.outputs))
        if name is None:
            typer.echo(json.dumps(outputs, indent=1, sort_keys=True))
        elif name in outputs:
            typer.echo(outputs[name])
        else:
            known = ", ".join(sorted(outputs)) or "none"
            raise StateProblem(f"the stack {stack} has no output {name}; it has: {known}")


@stack_app.command("export")
def export_state(stack: _Stack) -> None:
    """Print the stack's deployment as `pulumi stack export` does."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        store = target_of(stack).store()
        document = store.encode(store.load().resources)
        deployment = {"version": 3, "deployment": document["checkpoint"]["latest"]}
        typer.echo(json.dumps(deployment, indent=4))


@stack_app.command("import")
def import_state(stack: _Stack, file: Path) -> None:
    """Replace the stack's state by an exported deployment."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.errors import StateProblem
        from divvy.engine.state.lock import locked

        store = target_of(stack).store()
        try:
            raw = json.loads(file.read_text())
            document = {"version": raw["version"], "checkpoint": {"latest": raw["deployment"]}}
            resources = store.decode(document)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateProblem(f"{file} is not an exported deployment: {error}") from None
        with locked(store.root, store.project, store.stack):
            store.create()
            store.write(resources)


@config_app.command("get")
def get_config(key: str, stack: _Stack) -> None:
    """Print one value of the stack's configuration."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.errors import ProjectProblem
        from divvy.engine.operations import opened_config
        from divvy.engine.project import stack_config

        wish = target_of(stack)
        values, _ = opened_config(stack_config(wish.project, stack))
        full = key if ":" in key else f"{wish.project.name}:{key}"
        if full not in values:
            raise ProjectProblem(f"{full} is not set in the stack {stack}")
        typer.echo(values[full])


@config_app.command("set")
def set_config(
    key: str,
    value: str,
    stack: _Stack,
    *,
    secret: Annotated[bool, typer.Option("--secret", help="Encrypt the value.")] = False,
) -> None:
    """Set one plain or secret value in the stack's file; comments in the file stay."""
    from divvy.cli.deploy import plain_errors, target_of

    with plain_errors():
        from divvy.engine.stack_file import set_value

        wish = target_of(stack)
        set_value(wish.project, stack, key, value, secret=secret)
