"""The divvy command: its subcommands, each loaded when it is called, and how all of them end."""

import errno
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from divvy.cli.bare_stack import BareStackCommand
from divvy.cli.exit_codes import FAILED, INTERRUPTED
from divvy.errors import CommandError
from divvy.kube.errors import KubeconfigError
from divvy.stack.errors import StackError
from divvy.version_info import install_command

# Group of `divvy --help` → name of the command → its module in divvy.cli, and what the help says.
_GROUPS = {
    "Plan and review": {
        "init": ("init", "Create a project and a stack file from an existing cluster."),
        "validate": ("validate", "Check stack files and report every error at once."),
        "plan": ("plan", "Predict what every node will advertise and guarantee."),
        "diff": ("diff", "Show what changes between stack files, or from the live nodes."),
        "preview": ("deploy", "Show what `up` would do."),
        "fit": ("fit", "Show whether pods fit, on which nodes, and what they lack."),
        "advise": ("advise", "Advise which profile the recorded pods of a pool would need."),
        "chart": ("chart", "Write a stack as a Helm chart, manifests, or for the GPU Operator."),
    },
    "Run and look": {
        "up": ("deploy", "Bring the cluster to the state in the stack file."),
        "status": ("status", "Show what is wrong: nodes, agents, waiting changes, pods, alerts."),
        "top": ("top", "Show who holds which GPU, and how much of it is in use."),
        "why": ("why", "Explain why a pod waits for a GPU."),
        "verify": ("verify", "Prove on live nodes what the plan promises."),
        "destroy": ("deploy", "Delete what is deployed in the cluster."),
    },
    "Set up": {
        "import": ("import_configs", "Turn existing configurations into profiles."),
        "schema": ("schema", "Print the JSON Schema of stack files."),
    },
}
COMMANDS = {name: entry for group in _GROUPS.values() for name, entry in group.items()}
# Other distributions add commands by this group of entry points, as divvy-lab adds `divvy lab`.
_ENTRY_POINTS = "divvy.commands"
_OTHERS = "Installed beside Divvy"
_EXIT_CODES = """\
Exit codes:
0: done; `preview`, `diff`: no difference; `fit`: all pods fit;
   `status`: nothing is wrong; `advise`: change it or leave it as it is
1: an error, a usage error included; `verify`: a check failed
2: `preview`, `diff`: there are changes; `fit`: not all pods fit;
   `verify`: nothing checked; `status`: something is wrong;
   `advise`: unknown, as with too little data;
   `up`: done, but nodes differ from the plan (`--no-wait` does not look)
3: `verify --require`: a check that must hold could not be made
130: interrupted"""


class _Commands(Mapping[str, Any]):
    """The commands by name; getting one loads its module."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            command = typer.main.get_command(added_commands()[name].load())
            command.name = name
            return command
        module, summary = COMMANDS[name]
        command_module = import_module(f"divvy.cli.{module}")
        app = getattr(command_module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            app.command(name, cls=BareStackCommand)(getattr(command_module, name))
        else:
            app.info.help = summary
        command = typer.main.get_command(app)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter((*COMMANDS, *added_commands()))

    def __len__(self) -> int:
        return len(COMMANDS) + len(added_commands())


@cache
def added_commands() -> dict[str, EntryPoint]:
    """Return the commands of other installed distributions, by name."""
    return {entry.name: entry for entry in entry_points(group=_ENTRY_POINTS)}


def _summary(entry: EntryPoint) -> str:
    """Return what the distribution of a command says that it is; its module is not loaded."""
    return entry.dist.metadata["Summary"] if entry.dist else ""


class DivvyGroup(TyperGroup):
    """The whole command: it loads one subcommand, and turns what goes wrong into one error."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        commands: Any = _Commands()
        self.commands = commands

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Return the names, in the order of the help."""
        return [*COMMANDS, *added_commands()]

    def format_help(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]
        """Write the help from the table, without loading a command."""
        loading, self.commands = (
            self.commands,
            {
                name: TyperCommand(name, help=summary, rich_help_panel=title)
                for title, group in _help_groups().items()
                for name, summary in group.items()
            },
        )
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = loading

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command line and end the process with its exit code."""
        arguments = list(sys.argv[1:] if args is None else args) or ["--help"]
        try:
            _require_folder()
            result = super().main(arguments, **{**extra, "standalone_mode": False})
            sys.stdout.flush()  # while a full disk can still be reported
        except typer.TyperException as usage:
            result = _failed(_usage_error(usage))
        except typer.Abort as abort:
            interrupted = isinstance(abort.__context__, KeyboardInterrupt)  # at a question
            result = INTERRUPTED if interrupted else _failed("aborted")
        except (CommandError, StackError, KubeconfigError) as error:
            result = _failed(str(error))
        except ModuleNotFoundError as missing:
            if (brings := _extra_of(missing)) is None:
                raise
            result = _failed(f"this needs the package {missing.name}: {install_command(brings)}")
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            # What is still buffered cannot be written at the end of the process either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            result = _failed(f"cannot write {error.filename or 'the output'}: {error.strerror}")
        sys.exit(result if isinstance(result, int) else 0)


def _help_groups() -> dict[str, dict[str, str]]:
    """Return the names and summaries of the help, by group."""
    groups = {
        title: {name: summary for name, (_, summary) in group.items()}
        for title, group in _GROUPS.items()
    }
    return {**groups, _OTHERS: {name: _summary(entry) for name, entry in added_commands().items()}}


def _require_folder() -> None:
    try:
        Path.cwd()
    except FileNotFoundError:
        raise CommandError("the current directory has been removed; change to another") from None


def _extra_of(missing: ModuleNotFoundError) -> str | None:
    """Return what brings a package that is not installed; None if the fault is our own."""
    match (missing.name or "divvy").partition(".")[0]:
        case "divvy":
            return None
        case _:
            return "cli"


def _usage_error(usage: Any) -> str:
    message = usage.format_message().rstrip(".")
    context = getattr(usage, "ctx", None)
    return message if context is None else f"{message}; see `{context.command_path} --help`"


def _failed(message: str) -> int:
    typer.echo(f"error: {message}", err=True)
    return FAILED


app = typer.Typer(
    name="divvy",
    cls=DivvyGroup,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from divvy.version_info import version_words  # noqa: PLC0415

        typer.echo(version_words())
        raise typer.Exit


@app.callback(epilog=_EXIT_CODES)
def divvy(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print version, revision and origin.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """GPU sharing as code for Kubernetes: predict, provision and prove."""


def main() -> None:
    """Run the command line."""
    # Most commands are short and keep what they make: looking for garbage takes a tenth of them.
    gc.set_threshold(100_000)
    try:
        app()
    finally:
        gc.freeze()  # … and the search at the end of the process another tenth
