"""divvy verify: prove on live nodes what the plan promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

_Stack = Annotated[str | None, typer.Option("--stack", "-s", help="The stack to prove.")]
_File = Annotated[Path | None, typer.Option("--file", help="A stack file instead of a name.")]
_Pool = Annotated[str | None, typer.Option("--pool", help="Only this pool.")]
_Select = Annotated[
    str | None, typer.Option("--select", help="Only checks with these ids: PLUG, or ISO-01,WORK.")
]
_Exclusive = Annotated[
    bool, typer.Option("--exclusive", help="Fill nodes, burn, ask for too much: needs idle GPUs.")
]
_Disruptive = Annotated[bool, typer.Option("--disruptive", help="Restart agents.")]
_NoExec = Annotated[bool, typer.Option("--no-exec", help="Do not enter the agent's pods.")]
_Image = Annotated[str | None, typer.Option("--workload-image", help="Image with the workloads.")]
_Out = Annotated[Path, typer.Option("--out", help="Folder for the reports.")]
_Baseline = Annotated[
    Path | None, typer.Option("--baseline", help="An earlier report.yaml to compare with.")
]


def register(app: typer.Typer) -> None:
    """Add the command to divvy."""
    app.command()(verify)


def verify(
    *,
    stack: _Stack = None,
    file: _File = None,
    pool: _Pool = None,
    select: _Select = None,
    exclusive: _Exclusive = False,
    disruptive: _Disruptive = False,
    no_exec: _NoExec = False,
    workload_image: _Image = None,
    out: _Out = Path("out/conformance"),
    baseline: _Baseline = None,
) -> None:
    """Check the live cluster; exit 0: success or partial, 1: failure, 2: nothing was checked."""
    import yaml

    from divvy.cli.stack_files import CannotRead, read_stack
    from divvy.model import InvalidCluster

    try:
        found = read_stack(stack, file)
        cluster = found.cluster()
    except (CannotRead, InvalidCluster) as problem:
        typer.echo(f"divvy: {problem}", err=True)
        raise typer.Exit(1) from None
    earlier = None if baseline is None else _earlier(baseline)
    root = _suite()
    image = workload_image or _built(root, cluster.plugin.image)
    arguments = [f"--divvy-file={found.source}", f"--divvy-report={out.resolve()}"]
    arguments.append(f"--divvy-stack={found.name}")
    for name, value in (("pool", pool), ("select", select)):
        arguments += [f"--divvy-{name}={value}"] if value else []
    for flag, given in (
        ("--exclusive", exclusive),
        ("--disruptive", disruptive),
        ("--no-exec", no_exec),
    ):
        arguments += [flag] if given else []
    arguments += [f"--workload-image={image}"] if image else []
    command = [sys.executable, "-m", "pytest", "conformance", "--divvy-progress"]
    command += ["--override-ini", "addopts="]
    command += ["-p", "no:cacheprovider", "-p", "no:terminal", *arguments]
    report = out / "report.yaml"
    report.unlink(missing_ok=True)
    ended = subprocess.run(command, cwd=root, check=False).returncode
    if not report.exists():
        typer.echo(f"divvy: the suite ended with {ended} before it could report", err=True)
        raise typer.Exit(1)
    document = yaml.safe_load(report.read_text())
    _conclude(document, out, earlier)
    raise typer.Exit({"failure": 1, "nothing checked": 2}.get(document["result"], 0))


def _suite() -> Path:
    """Return the folder that holds the suite: the project around Divvy's own package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "conformance").is_dir():
        typer.echo("divvy: the conformance suite is not beside the package: run from a checkout")
        raise typer.Exit(1)
    return root


def _built(root: Path, image: object) -> str | None:
    """Build the workloads' image where the stack file says images are built."""
    registry, base = getattr(image, "registry", None), getattr(image, "base", None)
    if not registry or not base:
        return None
    built = subprocess.run(
        [sys.executable, "-m", "conformance.image", registry, base],
        cwd=root,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return built.stdout.strip() if built.returncode == 0 else None


def _earlier(baseline: Path) -> dict[str, Any]:
    """Read an earlier report before the run, which would be in vain without."""
    import yaml

    try:
        document = yaml.safe_load(baseline.read_text())
    except (OSError, yaml.YAMLError) as problem:
        typer.echo(f"divvy: the baseline cannot be read: {problem}", err=True)
        raise typer.Exit(1) from None
    if not isinstance(document, dict) or document.get("kind") != "GpuConformanceReport":
        typer.echo(f"divvy: {baseline} is no report.yaml of an earlier run", err=True)
        raise typer.Exit(1)
    return document


def _conclude(document: dict[str, Any], out: Path, earlier: dict[str, Any] | None) -> None:
    from rich.console import Console

    from divvy.render.conformance import baseline_lines, summary_lines

    console = Console(highlight=False)
    for line in summary_lines(document):
        console.print(line)
    if earlier is not None:
        try:
            for line in baseline_lines(earlier, document):
                console.print(line)
        except ValueError as problem:
            typer.echo(f"divvy: {problem}", err=True)
            raise typer.Exit(1) from None
    console.print(f"report: {out / 'report.html'}")
