"""divvy lab: a real Kubernetes with GPU nodes on this machine."""

import functools
import time
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer

lab_app = typer.Typer(
    name="lab",
    help="A real Kubernetes with GPU nodes on this machine.",
    no_args_is_help=True,
)

_Stack = Annotated[str, typer.Option("--stack", "-s", help="Stack whose divvy:lab to start.")]
_P = ParamSpec("_P")
_R = TypeVar("_R")


def register(app: typer.Typer) -> None:
    """Add the command to divvy."""
    app.add_typer(lab_app)


def _plain_errors(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """Turn the lab's errors into one sentence on stderr and exit code 1."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        from divvy.lab.control_plane import ControlPlaneFailed
        from divvy.lab.description import InvalidDescription
        from divvy.lab.lifecycle import LabFailed
        from divvy.lab.machine import NodeFailed
        from divvy.lab.network import NetworkFailed
        from divvy.lab.registry import RegistryFailed

        known = (
            InvalidDescription,
            LabFailed,
            NodeFailed,
            NetworkFailed,
            ControlPlaneFailed,
            RegistryFailed,
            TimeoutError,
        )
        try:
            return command(*args, **kwargs)
        except known as error:
            typer.echo(f"divvy lab: {error}", err=True)
            raise typer.Exit(1) from None

    return wrapped


@lab_app.command()
@_plain_errors
def up(stack: _Stack = "lab") -> None:
    """Start the lab, or put back what is missing of a running one."""
    from divvy.lab import lifecycle
    from divvy.lab.stack import read_lab, stack_file

    lab = read_lab(stack_file(stack))
    began = time.monotonic()
    lifecycle.up(lab, lambda line: typer.echo(f"{time.monotonic() - began:5.1f} s  {line}"))


@lab_app.command()
@_plain_errors
def down() -> None:
    """End the lab and remove everything of it, in whatever state it is."""
    from divvy.lab import lifecycle

    began = time.monotonic()
    ended = lifecycle.down()
    said = f"the lab is down, {ended} processes ended" if ended else "no lab was up"
    typer.echo(f"{time.monotonic() - began:5.1f} s  {said}")


@lab_app.command()
@_plain_errors
def status() -> None:
    """Show what runs; exit code 1 if anything of the lab is missing."""
    from divvy.lab.status import report

    lines, complete = report()
    for line in lines:
        typer.echo(line)
    if not complete:
        raise typer.Exit(1)


@lab_app.command()
@_plain_errors
def logs(
    of: Annotated[str, typer.Argument(metavar="NODE|COMPONENT")],
    component: Annotated[str | None, typer.Argument(help="One component of the node.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last lines of each log.")] = 100,
) -> None:
    """Show the logs of a node's components or of a component of the control plane."""
    import os

    from divvy.lab.status import log_files

    files = log_files(of, component)
    options = ["-F"] if follow else []
    os.execvp("tail", ["tail", "-n", str(lines), *options, *map(str, files)])


@lab_app.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
@_plain_errors
def execute(node: str, command: Annotated[list[str], typer.Argument()]) -> None:
    """Run a command on a node, as its root: divvy lab exec gpu-t4 -- ctr version."""
    import os

    from divvy.lab.lifecycle import running_machine

    words = command[1:] if command[0] == "--" else command
    inside = running_machine(node).enter_command(words)
    os.execvp(inside[0], inside)


@lab_app.command()
@_plain_errors
def restart(
    node: str,
    component: Annotated[
        str | None, typer.Argument(help="kubelet, containerd or kube-proxy; else the whole node.")
    ] = None,
) -> None:
    """Restart a node, or one of its components while its pods keep running."""
    from divvy.lab import lifecycle

    machine = lifecycle.running_machine(node)
    if component is None:
        lifecycle.restart_node(machine, typer.echo)
        return
    machine.restart(component)
    typer.echo(f"{component} of {node} restarted")


@lab_app.command()
@_plain_errors
def kill(node: str) -> None:
    """End a node at once, as a power cut does; up or restart brings it back."""
    from divvy.lab import lifecycle

    lifecycle.running_machine(node).kill()
    typer.echo(f"{node} is gone; divvy lab up brings it back")


@lab_app.command()
@_plain_errors
def load(image: str) -> None:
    """Push an image (file, OCI layout, name in buildah's storage); print its name by digest."""
    from divvy.lab import lifecycle, registry

    typer.echo(registry.load(lifecycle.running_lab(), image))


@lab_app.command()
@_plain_errors
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    from divvy.lab import lifecycle
    from divvy.lab.paths import KUBECONFIG

    lifecycle.running_lab()
    typer.echo(str(KUBECONFIG))
