"""divvy schema: the JSON Schema of stack files, for editors and the chart."""

from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.output import write


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="schema")(schema)


def schema(
    out: Annotated[Path | None, typer.Option(help="Write to this file.")] = None,
) -> None:
    """Print the JSON Schema of stack files."""
    import json

    from divvy.model.schema import stack_file_schema

    write(json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n", out)
