"""Writes results of the commands: to a file, a pipe or a terminal."""

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, RenderableType

from divvy.errors import fail

Format = Literal["text", "md", "json", "html"]
TextOrJson = Annotated[Literal["text", "json"], typer.Option("-o", "--output", help="The format.")]

# Of lines that no terminal shows.
_PIPED, _FILED = 80, 100


def write(result: str | RenderableType, out: Path | None) -> None:
    """Write a result to a file or to standard output; terminals get colour, files never.

    What is no terminal gets the same bytes on every machine: UTF-8, lines of one length.
    """
    if out is None:
        _print(result)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            if isinstance(result, str):
                file.write(result)
            else:
                Console(file=file, width=_FILED, no_color=True, highlight=False).print(result)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")


def encode_output() -> None:
    """Have what is no terminal get UTF-8, and a terminal `?` for what its encoding lacks."""
    if isinstance(sys.stdout, TextIOWrapper):
        encoding = None if sys.stdout.isatty() else "utf-8"
        sys.stdout.reconfigure(encoding=encoding, errors="replace")


def _print(result: str | RenderableType) -> None:
    terminal = sys.stdout.isatty()
    encode_output()
    if isinstance(result, str):
        typer.echo(result, nl=False)
    elif terminal:
        Console(highlight=False, soft_wrap=False).print(result)
    else:
        Console(width=_PIPED, force_terminal=False, no_color=True, highlight=False).print(result)
