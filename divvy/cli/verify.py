"""divvy verify: prove on live nodes what the plan promised."""

import json
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Any

import typer
import yaml
from rich.console import Console

from divvy.cli.cluster_reader import NotAllowed, reading
from divvy.cli.errors import (
    FAILED,
    INTERRUPTED,
    NOTHING_CHECKED,
    REQUIRED_NOT_CHECKED,
    fail,
)
from divvy.cli.kept_report import keep_report, kept_report
from divvy.cli.options import StackName, StackPath, named_stack
from divvy.cli.output import encode_output
from divvy.cli.run_archive import (
    ARCHIVE,
    PRODUCT,
    read_report,
    write_archive,
    write_product,
)
from divvy.cli.verify_in_cluster import write_job
from divvy.distribution import install_command
from divvy.kube.errors import KubeconfigError
from divvy.kube.kind import kind_named
from divvy.model import Cluster
from divvy.model.contract import AGENT
from divvy.render.comparison import comparison_lines, comparison_markdown
from divvy.render.conformance import summary_lines, summary_words
from divvy.reports.archive import report_archive
from divvy.reports.comparison import Comparison, compare_reports, continued, require_stack
from divvy.reports.product import product_rows
from divvy.sources import CONFORMANCE
from divvy.stack.file import read_stack
from divvy.stack.sections import read_cluster

# What the extra `verify` brings and the suite imports.
_PACKAGES = ("pytest", "testinfra")
# What changed, for a pull request.
COMPARISON = "comparison.md"
# What the suite writes beside report.yaml.
_OTHER_REPORTS = ("report.html", "junit.xml", "ctrf.json")
# What pytest writes before a usage error.
_REFUSAL = "ERROR: "
# A process that the suite has left behind may hold its output open.
_LAST_WORDS_SECONDS = 2.0
_Pool = Annotated[str | None, typer.Option("--pool", help="Only this pool.")]
_Select = Annotated[
    str | None, typer.Option("--select", help="Only checks with these ids: PLUG, or ISO-01,WORK.")
]
_Target = Annotated[
    str,
    typer.Option(
        "--target", help="What shares the GPUs: divvy, nvidia-device-plugin or nvidia-dra."
    ),
]
_Exclusive = Annotated[
    bool,
    typer.Option(
        "--exclusive", help="Fill nodes, run gpu-burn, exceed memory limits: needs idle GPUs."
    ),
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
    str | None, typer.Option("--driver-root", help="With --bare, the root folder of the driver.")
]
_Workloads = Annotated[
    Path | None,
    typer.Option(
        "--workloads", help="With --bare, a folder of compiled workloads: no compiler needed."
    ),
]
_Mig = Annotated[
    bool,
    typer.Option(
        "--mig", help="With --bare, partition an idle GPU by MIG, and make it whole again."
    ),
]
_Image = Annotated[str | None, typer.Option("--workload-image", help="Image with the workloads.")]
_VectorAdd = Annotated[
    str | None,
    typer.Option("--vector-add-image", help="Also run this third-party vectorAdd image."),
]
_Burn = Annotated[
    str | None, typer.Option("--gpu-burn-image", help="Also run this third-party gpu-burn image.")
]
_Out = Annotated[Path, typer.Option("--out", help="Folder for the reports.")]
_Sample = Annotated[
    str | None,
    typer.Option("--sample", help="Number of nodes of each pool and profile, or a percentage: 5%."),
]
_Seed = Annotated[
    str | None,
    typer.Option("--seed", help="Selects the sample's nodes: another seed, other nodes."),
]
_Changed = Annotated[
    bool,
    typer.Option("--changed", help="Only nodes that changed since the report of --compare."),
]
_TimeLimit = Annotated[
    int | None,
    typer.Option("--time-limit", min=1, help="Start no check after this many minutes."),
]
_Require = Annotated[
    bool,
    typer.Option("--require", help="Exit 3 if a MUST check could not be made: for CI."),
]
_Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit 1 if a recommendation (SHOULD) does not hold, too."),
]
_Compare = Annotated[
    str | None,
    typer.Option(
        "--compare",
        help="An earlier report.yaml or archive to compare with, or `last`: the one in the "
        "cluster. Exit 1 if a check newly fails, 3 if a MUST check can no longer be made.",
    ),
]
_Product = Annotated[
    bool,
    typer.Option(
        "--product", help="Write PRODUCT.yaml: rows of the CNCF's AI conformance product file."
    ),
]
_InCluster = Annotated[
    bool,
    typer.Option("--in-cluster", help="Run nothing: write a Job that runs it."),
]
_Runner = Annotated[
    str | None, typer.Option("--runner-image", help="With --in-cluster, the image of the suite.")
]
# Of --target: what `divvy up` deploys.
_OWN = "divvy"
# Of --compare: the report that the cluster keeps.
_LAST = "last"
# What a Job has otherwise: its stack file, its images, and where its reports go.
_NOT_OF_A_JOB = ("stack", "file", "out", "in_cluster", "runner_image", "workload_image")


def verify(
    context: typer.Context,
    *,
    stack: StackName = None,
    file: StackPath = None,
    target: _Target = _OWN,
    pool: _Pool = None,
    sample: _Sample = None,
    seed: _Seed = None,
    changed: _Changed = False,
    time_limit: _TimeLimit = None,
    select: _Select = None,
    exclusive: _Exclusive = False,
    disruptive: _Disruptive = False,
    no_exec: _NoExec = False,
    bare: _Bare = False,
    host: _Host = None,
    driver_root: _Root = None,
    workloads: _Workloads = None,
    mig: _Mig = False,
    workload_image: _Image = None,
    vector_add_image: _VectorAdd = None,
    gpu_burn_image: _Burn = None,
    out: _Out = Path("out/conformance"),
    require: _Require = False,
    strict: _Strict = False,
    compare: _Compare = None,
    product: _Product = False,
    in_cluster: _InCluster = False,
    runner_image: _Runner = None,
) -> None:
    """Check the live cluster against the plan.

    Exit codes:

    0: nothing failed; `partial`: some checks were not made;
    `warning`: a recommendation does not hold

    1: a check failed; with --strict a recommendation, too;
    with --compare one that passed before

    2: nothing was checked, or Divvy is not deployed

    3: a MUST check could not be made (--require),
    or no longer can (--compare)
    """
    if not bare and (host or driver_root or workloads or mig):
        fail("--host, --driver-root, --workloads and --mig are for --bare")
    if bare and (sample or seed or changed):
        fail("--sample, --seed and --changed are for a cluster")
    if bare and target != _OWN:
        fail("--target is for a cluster")
    if bare and (pool is not None or disruptive or no_exec):
        fail("--pool, --disruptive and --no-exec are for a cluster")
    if bare and (workload_image or vector_add_image or gpu_burn_image):
        fail("--bare runs no images: --workloads names a folder of compiled workloads")
    if changed and compare is None:
        fail("--changed needs --compare: the report since which nodes have changed")
    if seed and not sample:
        fail("--seed is for --sample")
    if runner_image and not in_cluster:
        fail("--runner-image is for --in-cluster")
    if not bare:
        stack = named_stack(stack, file)
    if in_cluster:
        if bare or compare not in (None, _LAST):
            fail(
                "--in-cluster takes no --bare and no file to compare with: a pod reads no local one"
            )
        write_job(out, read_stack(stack, file), _of_a_job(context), runner_image, workload_image)
        return
    _require_suites_packages()
    encode_output()
    source = None if bare and not stack and not file else read_stack(stack, file)
    cluster = None if source is None else read_cluster(source)
    # Before the run: without it the run would be wasted.
    earlier = None if compare is None else _earlier(compare, None if bare else cluster)
    if earlier is not None and source is not None and not bare:
        try:
            require_stack(earlier, source.name)
        except ValueError as problem:
            fail(str(problem))
    if cluster is not None and not bare and target == _OWN:
        _require_deployed(cluster, source.name if source else "")
    report = _place_for_report(out)
    arguments = ["--bare"] if bare else []
    if source is not None:
        arguments += [f"--divvy-file={Path(source.source).resolve()}"]
        arguments += [f"--divvy-stack={source.name}"]
    for name, value in (
        ("--divvy-target", None if bare else target),
        ("--divvy-pool", pool),
        ("--divvy-sample", sample),
        ("--divvy-seed", seed),
        ("--divvy-time-limit", None if time_limit is None else time_limit * 60),
        ("--divvy-select", select),
        ("--bare-host", host),
        # The suite runs from a folder of its own; another host's folders are its.
        ("--driver-root", driver_root if host or not driver_root else Path(driver_root).absolute()),
        ("--workloads", None if workloads is None else workloads.absolute()),
        ("--workload-image", workload_image),
        ("--vector-add-image", vector_add_image),
        ("--gpu-burn-image", gpu_burn_image),
    ):
        # An empty value is a mistake, and not the same as none.
        arguments += [f"{name}={value}"] if value is not None else []
    for flag, given in (
        ("--exclusive", exclusive),
        ("--disruptive", disruptive),
        ("--no-exec", no_exec),
        ("--mig", mig),
        ("--divvy-strict", strict),
        ("--divvy-require", require),
    ):
        arguments += [flag] if given else []
    with tempfile.TemporaryDirectory() as scratch:
        if changed and earlier is not None:
            before = Path(scratch, "earlier.json")
            before.write_text(json.dumps(earlier))
            arguments += [f"--divvy-changed-since={before}"]
        ended, refusal = _run_suite([f"--divvy-report={out.resolve()}", *arguments])
    if not report.exists():
        fail(refusal or f"the suite exited with {ended} before it wrote a report")
    document = yaml.safe_load(report.read_bytes())
    _show(document, out, product=product)
    archive = write_archive(out, document, source)
    typer.echo(f"report: {out / 'report.html'}\narchive: {out / ARCHIVE}")
    if changed and earlier is not None:
        # What was not looked at is as it was.
        document = continued(earlier, document)
        archive = report_archive(document)
        typer.echo(f"with the nodes that have not changed: {summary_words(document)}")
    # A part of the checks or nodes is no report to compare the next run with.
    # What other programs do is no earlier state of Divvy's.
    if cluster is not None and not bare and not document.get("only") and target == _OWN:
        typer.echo(keep_report(cluster, archive, document))
    comparison = None if earlier is None else _compared(earlier, document, out)
    raise typer.Exit(_exit_code(document, comparison, require=require))


def _show(document: dict[str, Any], out: Path, *, product: bool) -> None:
    console = Console(highlight=False)
    for line in summary_lines(document):
        console.print(line)
    if product:
        write_product(out, document)
        for row in product_rows(document):
            typer.echo(f"{row.requirement.id}: {row.state}, {row.reason}")


def _compared(earlier: dict[str, Any], document: dict[str, Any], out: Path) -> Comparison:
    """Show what changed, and write it for a pull request."""
    try:
        comparison = compare_reports(earlier, document)
    except ValueError as problem:
        fail(str(problem))
    console = Console(highlight=False)
    for line in comparison_lines(comparison):
        console.print(line)
    (out / COMPARISON).write_text(comparison_markdown(comparison, document), encoding="utf-8")
    return comparison


def _exit_code(document: dict[str, Any], comparison: Comparison | None, *, require: bool) -> int:
    if document["result"] == "nothing checked":
        return NOTHING_CHECKED
    if document["result"] == "failure" or (comparison and comparison.newly_failing):
        return FAILED
    missing = require and document["statistics"].get("requiredNotChecked", 0)
    return REQUIRED_NOT_CHECKED if missing or (comparison and comparison.lost) else 0


def _of_a_job(context: typer.Context) -> list[str]:
    """Return the options of this call that are as good in a pod."""
    arguments = []
    for parameter in context.command.params:
        value = context.params[str(parameter.name)]
        if parameter.name in _NOT_OF_A_JOB or value == parameter.default:
            continue
        option = parameter.opts[0]
        arguments += [option] if value is True else [f"{option}={value}"]
    return arguments


def _require_deployed(cluster: Cluster, stack: str) -> None:
    """End the command where no agent is deployed: each check would fail after a wait of its own."""
    path = kind_named("apps/v1", "DaemonSet").path(cluster.namespace, AGENT)
    try:
        with reading(cluster.kubeconfig, cluster.context) as reader:
            is_deployed = reader.find(path) is not None
    except (NotAllowed, KubeconfigError):
        return  # the suite reports what it cannot look at
    if not is_deployed:
        typer.echo(
            f"Divvy is not deployed here (namespace {cluster.namespace} of "
            f"{cluster.context or 'the current context'} has no agent): run divvy up -s {stack}",
            err=True,
        )
        raise typer.Exit(NOTHING_CHECKED)


def _require_suites_packages() -> None:
    """Fail where the packages of the conformance suite are not installed."""
    if missing := [name for name in _PACKAGES if find_spec(name) is None]:
        fail(
            f"the conformance suite needs {' and '.join(missing)}: {install_command('cli,verify')}"
        )


def _place_for_report(out: Path) -> Path:
    """Return where the report will be; earlier files are removed, for none to be taken for its."""
    report = out / "report.yaml"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in (report.name, *_OTHER_REPORTS, ARCHIVE, COMPARISON, PRODUCT):
            (out / name).unlink(missing_ok=True)
    except OSError as problem:
        fail(f"--out={out} cannot be written to: {problem.strerror}")
    return report


def _run_suite(arguments: list[str]) -> tuple[int, str]:
    """Run the suite to its end; return its exit code, and why it did not begin.

    A request to stop is passed on, for it to clean up first.
    """
    # Its files are the same under every locale.
    command = [sys.executable, "-X", "utf8"]
    command += ["-m", "pytest", "conformance", "--divvy-progress"]
    command += ["--override-ini", "addopts="]
    command += ["-p", "no:cacheprovider", "-p", "no:terminal", *arguments]
    # In a session of its own it gets Ctrl-C from here alone, once.
    suite = subprocess.Popen(
        command,
        cwd=CONFORMANCE.parent,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    )
    refusals: list[str] = []
    passing_on = threading.Thread(target=_pass_on, args=(suite.stderr, refusals), daemon=True)
    passing_on.start()
    # A terminal that is lost ends the run, too; nohup has it ignored.
    stops = [signal.SIGTERM]
    stops += [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    before = [(number, signal.signal(number, signal.default_int_handler)) for number in stops]
    try:
        ended = suite.wait()
        passing_on.join(_LAST_WORDS_SECONDS)
        return ended, "".join(refusals)
    except KeyboardInterrupt:
        # Which it does not ignore, as it may Ctrl-C below a shell's background job.
        suite.send_signal(signal.SIGTERM)
        with suppress(OSError):
            typer.echo("\ncleaning up", err=True)
        suite.wait()
        raise typer.Exit(INTERRUPTED) from None
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _pass_on(lines: IO[str] | None, refusals: list[str]) -> None:
    """Write what the suite says, but for its refusal to begin: that is the command's own error."""
    assert lines is not None
    with lines:
        for line in lines:
            if line.startswith(_REFUSAL):
                refusals.append(line.removeprefix(_REFUSAL).strip())
            elif not refusals or line.strip():
                # A terminal may be lost; the suite does not wait for what reads its words.
                with suppress(OSError):
                    typer.echo(line, nl=False, err=True)


def _earlier(place: str, cluster: Cluster | None) -> dict[str, Any] | None:
    """Read an earlier report from a file or from the cluster; None if that keeps none yet."""
    if place != _LAST:
        return read_report(Path(place))
    if cluster is None:
        fail("--compare=last is for a cluster: --bare needs the file of an earlier report")
    report = kept_report(cluster)
    if report is None:
        typer.echo("the cluster keeps no report yet: there is nothing to compare with")
    return report
