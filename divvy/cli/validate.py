"""divvy validate: check stack files."""

from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.output import counted, fail, problems_text


def register(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command(name="validate")(validate)


def validate(
    stacks: Annotated[
        list[str] | None, typer.Option("-s", "--stack", help="Stack to check; may be repeated.")
    ] = None,
    files: Annotated[
        list[Path] | None, typer.Option("--file", help="Stack file to check; may be repeated.")
    ] = None,
) -> None:
    """Check stack files and tell every error at once; nothing is touched."""
    from divvy.cli.stack_files import CannotRead, read_stack
    from divvy.model import InvalidCluster

    wanted: list[tuple[str | None, Path | None]] = [(stack, None) for stack in stacks or ()]
    wanted += [(None, file) for file in files or ()]
    if not wanted:
        fail("name a stack with -s <stack>, or a file with --file FILE")
    errors = []
    for stack, path in wanted:
        try:
            source = read_stack(stack, path)
        except CannotRead as error:
            errors.append(str(error))
            continue
        try:
            cluster = source.cluster()
        except CannotRead as error:
            errors.append(str(error))
        except InvalidCluster as invalid:
            errors.append(problems_text(source, invalid))
        else:
            pools = counted(len(cluster.pools), "pool")
            profiles = counted(len(cluster.profiles), "profile")
            typer.echo(f"{source.source}: valid ({pools}, {profiles})")
    if errors:
        fail("\n".join(errors))
