"""divvy config: a stack's configuration."""

import sys
from typing import Annotated

import typer

from divvy.cli.options import Stack
from divvy.cli.target import target_of
from divvy.engine.operations import opened_config
from divvy.engine.state.secrets import encrypt_config
from divvy.stack.config import full_key, stack_config
from divvy.stack.edit import set_value
from divvy.stack.errors import StackError
from divvy.stack.yaml_text import text_of

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
    value: Annotated[
        str | None,
        typer.Argument(help="Read from standard input if left out: other users see arguments."),
    ] = None,
    *,
    stack: Stack,
    secret: Annotated[bool, typer.Option("--secret", help="Encrypt the value.")] = False,
) -> None:
    """Set one plain or secret value in the stack's file; the rest of the file stays as it is."""
    project = target_of(stack).project
    full, salt = full_key(project, key), None
    text = _typed(secret=secret) if value is None else value
    new: str | dict[str, str] = text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StackError("the value is not text in UTF-8") from None
    if secret:
        new, salt = encrypt_config(text, stack_config(project, stack).salt)
    set_value(project, stack, full, new, salt=salt)


def _typed(*, secret: bool) -> str:
    """Return a value from the terminal or a pipe, without the newline at its end."""
    if sys.stdin.isatty():
        typed: str = typer.prompt("value", hide_input=secret)
        return typed
    value = text_of(sys.stdin, "standard input").removesuffix("\n")
    if not value:
        raise StackError("there is no value: give one after the key, or write it to standard input")
    return value
