"""divvy verify: prove on live nodes what the plan promised."""

import inspect
import json
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Annotated, Any

import typer
import yaml
from rich.console import Console

from divvy.bundled_sources import CONFORMANCE
from divvy.cli.exit_codes import (
    FAILED,
    INTERRUPTED,
    NOTHING_CHECKED,
    REQUIRED_NOT_CHECKED,
)
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
from divvy.errors import fail
from divvy.kube.errors import KubeconfigError
from divvy.kube.kind import kind_named
from divvy.live.cluster_reader import NotAllowed, reading
from divvy.live.kept_report import keep_report, kept_report
from divvy.model import Cluster
from divvy.model.api_names import AGENT
from divvy.render.views.comparison import comparison_lines, comparison_markdown
from divvy.render.views.conformance import summary_lines, summary_words
from divvy.reports.archive import report_archive
from divvy.reports.comparison import Comparison, compare_reports, continued, require_stack
from divvy.reports.product import product_rows
from divvy.stack.file import read_stack
from divvy.stack.sections import read_cluster
from divvy.verify_options import OPTIONS, OWN_TARGET, command_line, given, misuse
from divvy.version_info import install_command

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
# Of --compare: the report that the cluster keeps.
_LAST = "last"


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of the table, beside those that it declares."""
    declared = inspect.signature(command)
    own = [p for p in declared.parameters.values() if p.kind is not p.VAR_KEYWORD]
    listed = [
        inspect.Parameter(
            option.parameter,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.unset,
            annotation=Annotated[
                bool if option.kind is None else option.kind | None,
                typer.Option(
                    f"--{option.name}",
                    help=option.help,
                    min=1 if option.kind is int else None,
                ),
            ],
        )
        for option in OPTIONS
    ]
    command.__signature__ = declared.replace(parameters=[*own, *listed])  # type: ignore[attr-defined]
    return command


@_with_options
def verify(
    *,
    stack: StackName = None,
    file: StackPath = None,
    **values: Any,
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
    if wrong := misuse(values):
        fail(wrong)
    bare, out, compare, target = (values[name] for name in ("bare", "out", "compare", "target"))
    if not bare:
        stack = named_stack(stack, file)
    if values["in_cluster"]:
        if compare not in (None, _LAST):
            fail("--in-cluster takes no file to compare with: a pod has none")
        images = values["runner_image"], values["workload_image"]
        write_job(out, read_stack(stack, file), _of_a_job(values), *images)
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
    if cluster is not None and not bare and target == OWN_TARGET:
        _require_deployed(cluster, source.name if source else "")
    report = _place_for_report(out)
    arguments = []
    if source is not None:
        arguments += [f"--divvy-file={Path(source.source).resolve()}"]
        arguments += [f"--divvy-stack={source.name}"]
    arguments += _of_suite(values)
    with tempfile.TemporaryDirectory() as scratch:
        if values["changed"] and earlier is not None:
            before = Path(scratch, "earlier.json")
            before.write_text(json.dumps(earlier))
            arguments += [f"--divvy-changed-since={before}"]
        ended, refusal = _run_suite([f"--divvy-report={out.resolve()}", *arguments])
    if not report.exists():
        fail(refusal or f"the suite exited with {ended} before it wrote a report")
    document = yaml.safe_load(report.read_bytes())
    _show(document, out, product=values["product"])
    archive = write_archive(out, document, source)
    typer.echo(f"report: {out / 'report.html'}\narchive: {out / ARCHIVE}")
    if values["changed"] and earlier is not None:
        # What was not looked at is as it was.
        document = continued(earlier, document)
        archive = report_archive(document)
        typer.echo(f"with the nodes that have not changed: {summary_words(document)}")
    # A part of the checks or nodes is no report to compare the next run with.
    # What other programs do is no earlier state of Divvy's.
    if cluster is not None and not bare and not document.get("only") and target == OWN_TARGET:
        typer.echo(keep_report(cluster, archive, document))
    comparison = None if earlier is None else _compared(earlier, document, out)
    raise typer.Exit(_exit_code(document, comparison, require=values["require"]))


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


def _of_suite(values: Mapping[str, Any]) -> list[str]:
    """Return the options of the suite; the folders of this host are absolute.

    The suite runs from a folder of its own. An empty value is a mistake, and not the same as none.
    """
    arguments = []
    for option in given(values):
        value = values[option.parameter]
        here = option.kind is Path or (option.name == "driver-root" and not values["host"])
        value = Path(value).absolute() if value and here else value
        if option.suite:
            arguments.append(command_line(option, value, option.suite))
    return arguments


def _of_a_job(values: Mapping[str, Any]) -> list[str]:
    """Return the options of this call that are as good in a pod."""
    kept = (option for option in given(values) if not option.of_command)
    return [command_line(option, values[option.parameter]) for option in kept]


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
