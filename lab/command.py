"""divvy lab: a real Kubernetes with GPU nodes on this machine."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from divvy.cli.bare_stack import BareStackCommand
from divvy.cli.options import stack_names
from divvy.stack.file import read_stack
from lab.cluster import lifecycle, registry
from lab.cluster.paths import KUBECONFIG
from lab.cluster.section import read_lab
from lab.cluster.status import log_files, report

app = typer.Typer(add_completion=False, help="A real Kubernetes with GPU nodes on this machine.")

_Stack = Annotated[
    str,
    typer.Option(
        "--stack", "-s", help="Stack whose divvy:lab to start.", autocompletion=stack_names
    ),
]
_File = Annotated[
    Path | None, typer.Option("--file", help="A stack file instead of a stack's name.")
]


def _telling() -> lifecycle.Tell:
    """Return a function that prints a line with the seconds since this call."""
    began = time.monotonic()
    return lambda line: typer.echo(f"{time.monotonic() - began:5.1f} s  {line}")


@app.command(cls=BareStackCommand)
def up(stack: _Stack = "lab", file: _File = None) -> None:
    """Start the lab, or repair a running one."""
    lab = read_lab(read_stack(None if file else stack, file))
    tell = _telling()
    lifecycle.up(lab, tell)


@app.command(cls=BareStackCommand)
def upgrade(
    stack: _Stack = "lab",
    file: _File = None,
    drain: Annotated[
        bool, typer.Option("--drain", help="Drain each node before, and uncordon it after.")
    ] = False,
) -> None:
    """Upgrade the running lab to the versions in divvy:lab: control plane, then nodes."""
    lab = read_lab(read_stack(None if file else stack, file))
    lifecycle.upgrade(lab, _telling(), drain)


@app.command()
def down() -> None:
    """Stop the lab and remove everything, whatever state it is in."""
    began = time.monotonic()
    count = lifecycle.down()
    outcome = f"the lab is down, {count} processes terminated" if count else "no lab was up"
    typer.echo(f"{time.monotonic() - began:5.1f} s  {outcome}")


@app.command()
def status() -> None:
    """Show what runs; exit code 1 if anything of the lab is missing."""
    lines, complete = report()
    for line in lines:
        typer.echo(line)
    if not complete:
        raise typer.Exit(1)


@app.command()
def logs(
    of: Annotated[str, typer.Argument(metavar="NODE|COMPONENT")],
    component: Annotated[str | None, typer.Argument(help="One component of the node.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", help="Last lines of each log.")] = 100,
) -> None:
    """Show the logs of a node's components or of a component of the control plane."""
    files = log_files(of, component)
    options = ["-F"] if follow else []
    os.execvp("tail", ["tail", "-n", str(lines), *options, *map(str, files)])


@app.command(
    "exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def execute(node: str, command: Annotated[list[str], typer.Argument()]) -> None:
    """Run a command on a node, as its root: divvy lab exec gpu-t4 -- ctr version."""
    words = command[1:] if command[0] == "--" else command
    inside = lifecycle.running_machine(node).enter_command(words)
    os.execvp(inside[0], inside)


@app.command()
def restart(
    node: str,
    component: Annotated[
        str | None, typer.Argument(help="kubelet, containerd or kube-proxy; else the whole node.")
    ] = None,
) -> None:
    """Restart a node, or one of its components while its pods keep running."""
    machine = lifecycle.running_machine(node)
    if component is None:
        lifecycle.restart_node(machine, typer.echo)
        return
    machine.restart(component)
    typer.echo(f"{component} of {node} restarted")


@app.command()
def kill(node: str) -> None:
    """Kill a node at once, as a power cut does; up or restart brings it back."""
    lifecycle.running_machine(node).kill()
    typer.echo(f"{node} is gone; divvy lab up brings it back")


@app.command()
def load(image: str) -> None:
    """Push an image (file, OCI layout, name in buildah's storage); print its name by digest."""
    typer.echo(registry.load(lifecycle.running_lab(), image))


@app.command()
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    lifecycle.running_lab()
    typer.echo(str(KUBECONFIG))
