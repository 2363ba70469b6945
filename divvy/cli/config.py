"""divvy config: a stack's configuration."""

from typing import Annotated

import typer

from divvy.cli.options import Stack
from divvy.cli.target import target_of
from divvy.engine.operations import opened_config
from divvy.engine.state.secrets import encrypt_config
from divvy.stack.config import full_key, stack_config
from divvy.stack.edit import set_value
from divvy.stack.errors import StackError

app = typer.Typer(add_completion=False)


@app.command("get")
def get_config(key: str, stack: Stack) -> None:
    """Print one value of the stack's configuration."""
    project = target_of(stack).project
    values = opened_config(stack_config(project, stack)).values
    full = full_key(project, key)
    if full not in values:
        raise StackError(f"{full} is not set in the stack {stack}")
    typer.echo(values[full])


@app.command("set")
def set_config(
    key: str,
    value: str,
    stack: Stack,
    *,
    secret: Annotated[bool, typer.Option("--secret", help="Encrypt the value.")] = False,
) -> None:
    """Set one plain or secret value in the stack's file; the rest of the file stays as it is."""
    project = target_of(stack).project
    full, salt = full_key(project, key), None
    new: str | dict[str, str] = value
    if secret:
        new, salt = encrypt_config(value, stack_config(project, stack).salt)
    set_value(project, stack, full, new, salt=salt)
