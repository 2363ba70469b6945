"""Where results of the commands go."""

from enum import StrEnum
from pathlib import Path

import typer
from rich.console import Console, RenderableType

from divvy.cli.errors import fail


class Format(StrEnum):
    """How a plan or a diff is shown."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    HTML = "html"


def write(result: str | RenderableType, out: Path | None) -> None:
    """Write a result to a file or to standard output; terminals get colour, files never."""
    if out is None:
        if isinstance(result, str):
            typer.echo(result, nl=False)
        else:
            Console(highlight=False, soft_wrap=False).print(result)
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            if isinstance(result, str):
                file.write(result)
            else:
                Console(file=file, width=100, no_color=True, highlight=False).print(result)
    except OSError as error:
        fail(f"cannot write {out}: {error.strerror}")


def counted(number: int, thing: str) -> str:
    """Return a count with its noun."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
