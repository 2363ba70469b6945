"""Where results and errors of the commands go."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from divvy.cli.stack_files import StackFile
    from divvy.model import InvalidCluster


class Format(StrEnum):
    """How a plan or a diff is shown."""

    TEXT = "text"
    MD = "md"
    JSON = "json"
    HTML = "html"


def write(result: "str | RenderableType", out: Path | None) -> None:
    """Write a result to a file or to standard output; terminals get colour, files never."""
    from rich.console import Console

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


def fail(message: str, code: int = 1) -> NoReturn:
    """Say one error on standard error and end."""
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(code)


def counted(number: int, thing: str) -> str:
    """Return a count with its noun."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def problems_text(file: "StackFile", invalid: "InvalidCluster") -> str:
    """Return all problems of a stack file as one block, in the order of its lines."""
    rows = sorted(
        ((file.line(problem) or 0, problem) for problem in invalid.problems),
        key=lambda row: row[0],
    )
    lines = [f"{file.source} has {counted(len(rows), 'error')}:"]
    for line, problem in rows:
        where = f"line {line}: " if line else ""
        lines.append(f"  {where}{problem.path}: {problem.reason}")
        if problem.remedy:
            lines.append(f"      {problem.remedy}")
    return "\n".join(lines)


@contextmanager
def reading(*files: "StackFile") -> Iterator[None]:
    """Turn what is wrong with stack files into one error and exit code 1."""
    from divvy.cli.stack_files import CannotRead
    from divvy.model import InvalidCluster

    try:
        yield
    except CannotRead as error:
        fail(str(error))
    except InvalidCluster as invalid:
        fail(problems_text(files[0], invalid) if files else str(invalid))
