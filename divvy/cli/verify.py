"""divvy verify: prove on live nodes what the plan promised."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from divvy.cli.stack_files import StackFile

_Stack = Annotated[str | None, typer.Option("--stack", "-s", help="The stack to prove.")]
_File = Annotated[Path | None, typer.Option("--file", help="A stack file instead of a name.")]
_Pool = Annotated[str | None, typer.Option("--pool", help="Only this pool.")]
_Select = Annotated[
    str | None, typer.Option("--select", help="Only checks with these ids: PLUG, or ISO-01,WORK.")
]
_Exclusive = Annotated[
    bool, typer.Option("--exclusive", help="Fill nodes, burn, ask for too much: needs idle GPUs.")
]
_Disruptive = Annotated[
    bool,
    typer.Option(
        "--disruptive",
        help="Restart agents and kubelets, change profiles and back, break simulated GPUs.",
    ),
]
_NoExec = Annotated[bool, typer.Option("--no-exec", help="Do not enter the agent's pods.")]
_Bare = Annotated[
    bool, typer.Option("--bare", help="Check this host, without Kubernetes; a stack is optional.")
]
_Host = Annotated[
    str | None, typer.Option("--host", help="With --bare, another host: ssh://user@name.")
]
_Root = Annotated[
    str | None, typer.Option("--driver-root", help="With --bare, where the driver is.")
]
_Image = Annotated[str | None, typer.Option("--workload-image", help="Image with the workloads.")]
_VectorAdd = Annotated[
    str | None, typer.Option("--vector-add-image", help="A vectorAdd image from elsewhere, too.")
]
_Burn = Annotated[
    str | None, typer.Option("--gpu-burn-image", help="A gpu-burn image from elsewhere, too.")
]
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
    bare: _Bare = False,
    host: _Host = None,
    driver_root: _Root = None,
    workload_image: _Image = None,
    vector_add_image: _VectorAdd = None,
    gpu_burn_image: _Burn = None,
    out: _Out = Path("out/conformance"),
    baseline: _Baseline = None,
) -> None:
    """Check the live cluster; exit 0: success or partial, 1: failure, 2: nothing was checked."""
    import yaml

    if not bare and (host or driver_root):
        _fail("--host and --driver-root are for --bare")
    root = _suite()
    found = None if bare and not stack and not file else _stack(stack, file)
    earlier = None if baseline is None else _earlier(baseline)
    arguments = ["--bare"] if bare else []
    if found is not None:
        arguments += [f"--divvy-file={Path(found.source).resolve()}", f"--divvy-stack={found.name}"]
        if not bare and not workload_image:
            workload_image = _built(root, found.cluster().plugin.image)
    for name, value in (
        ("--divvy-pool", pool),
        ("--divvy-select", select),
        ("--bare-host", host),
        ("--driver-root", driver_root),
        ("--workload-image", workload_image),
        ("--vector-add-image", vector_add_image),
        ("--gpu-burn-image", gpu_burn_image),
    ):
        arguments += [f"{name}={value}"] if value else []
    for flag, given in (
        ("--exclusive", exclusive),
        ("--disruptive", disruptive),
        ("--no-exec", no_exec),
    ):
        arguments += [flag] if given else []
    report = out / "report.yaml"
    report.unlink(missing_ok=True)
    ended = _run_suite(root, [f"--divvy-report={out.resolve()}", *arguments])
    if not report.exists():
        _fail(f"the suite ended with {ended} before it could report")
    document = yaml.safe_load(report.read_text())
    _conclude(document, out, earlier)
    raise typer.Exit({"failure": 1, "nothing checked": 2}.get(document["result"], 0))


def _fail(problem: str) -> NoReturn:
    typer.echo(f"divvy: {problem}", err=True)
    raise typer.Exit(1)


def _stack(stack: str | None, file: Path | None) -> StackFile:
    """Read the stack file and check it, before anything is built for it."""
    from divvy.cli.stack_files import CannotRead, read_stack
    from divvy.model import InvalidCluster

    try:
        found = read_stack(stack, file)
        found.cluster()
    except (CannotRead, InvalidCluster) as problem:
        _fail(str(problem))
    return found


def _suite() -> Path:
    """Return the folder that holds the suite: the project around Divvy's own package."""
    root = Path(__file__).resolve().parents[2]
    if not (root / "conformance").is_dir():
        _fail("the conformance suite is not beside the package: run from a checkout")
    return root


def _run_suite(root: Path, arguments: list[str]) -> int:
    """Run the suite to its end; a request to stop is passed on, for it to clean up first."""
    command = [sys.executable, "-m", "pytest", "conformance", "--divvy-progress"]
    command += ["--override-ini", "addopts="]
    command += ["-p", "no:cacheprovider", "-p", "no:terminal", *arguments]
    # In a session of its own it gets Ctrl-C from here alone, once.
    suite = subprocess.Popen(command, cwd=root, start_new_session=True)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return suite.wait()
    except KeyboardInterrupt:
        typer.echo("\ndivvy: cleaning up", err=True)
        suite.send_signal(signal.SIGINT)
        suite.wait()
        raise typer.Exit(130) from None
    finally:
        signal.signal(signal.SIGTERM, before)


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
        _fail(f"the baseline cannot be read: {problem}")
    if not isinstance(document, dict) or document.get("kind") != "GpuConformanceReport":
        _fail(f"{baseline} is no report.yaml of an earlier run")
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
            _fail(str(problem))
    console.print(f"report: {out / 'report.html'}")
