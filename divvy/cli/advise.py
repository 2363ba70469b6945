"""divvy advise: which profile a pool should have, by what its pods used."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType

from divvy.advise.advice import Advice, Guarantee
from divvy.advise.adviser import advise as advise_on
from divvy.advise.trace import Trace, read_recording, recording_text, trace_of
from divvy.atomic_file import replace_file
from divvy.cli.exit_codes import NOTHING_CHECKED
from divvy.cli.options import OutFile, Stack
from divvy.cli.output import Format
from divvy.cli.output import write as write_output
from divvy.errors import fail
from divvy.live.cluster_reader import reading
from divvy.live.recorded_pods import recorded_pods
from divvy.model import Cluster
from divvy.model.quantities import parse_duration
from divvy.render.views.advice import advice_markdown, advice_text
from divvy.render.views.advice_json import advice_json
from divvy.render.views.advice_page import advice_page
from divvy.stack.edit import with_profile
from divvy.stack.file import StackFile, read_path, stack_path
from divvy.stack.sections import read_cluster

_DAYS = re.compile(r"(\d{1,3})d")
_DAY = 86_400.0


def advise(
    stack: Stack,
    *,
    since: Annotated[
        str, typer.Option("--since", help="Look back so far; half of it must be recorded.")
    ] = "14d",
    pool: Annotated[str | None, typer.Option("--pool", help="Only this pool.")] = None,
    prometheus: Annotated[
        str | None,
        typer.Option(
            envvar="DIVVY_PROMETHEUS",
            help="Read a Prometheus: a URL, or NAMESPACE/SERVICE:PORT.",
        ),
    ] = None,
    recording: Annotated[
        Path | None,
        typer.Option("--from", help="Read a recording, as `divvy top --record FILE` writes it."),
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Keep what Prometheus told as a recording.")
    ] = None,
    headroom: Annotated[
        int, typer.Option(min=0, max=400, help="Memory above a pod's peak, in per cent of it.")
    ] = 20,
    allow: Annotated[
        list[Guarantee] | None,
        typer.Option("--allow", help="Let this guarantee get weaker; more than once for more."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Give the pools these profiles in the stack file.")
    ] = False,
    output: Annotated[Format, typer.Option("-o", "--output", help="Format.")] = "text",
    out: OutFile = None,
) -> None:
    """Advise which profile recorded pods need; exit code 0: said, 2: unknown, 1: an error."""
    path = stack_path(stack)
    file = read_path(path)
    cluster = read_cluster(file)
    if pool is not None and pool not in cluster.pools:
        fail(f"the stack file has no pool {pool}; it has {', '.join(cluster.pools)}")
    seconds = _seconds(since)
    trace = _trace(cluster, stack, seconds, prometheus, recording, record)
    pools = cluster.pools if pool is None else (pool,)
    advice = advise_on(
        cluster,
        trace,
        pools,
        seconds,
        frozenset(allow or ()),
        headroom / 100,
    )
    write_output(_VIEWS[output](advice), out)
    if write:
        _write(file, path, advice)
    raise typer.Exit(NOTHING_CHECKED if any(known.unknown for known in advice.pools) else 0)


def _seconds(since: str) -> float:
    if days := _DAYS.fullmatch(since):
        return int(days[1]) * _DAY
    try:
        return parse_duration(since)
    except ValueError as problem:
        fail(f"--since {str(problem).removesuffix(' is expected')} or 14d is expected")


def _trace(
    cluster: Cluster,
    stack: str,
    seconds: float,
    prometheus: str | None,
    recording: Path | None,
    record: Path | None,
) -> Trace:
    if recording is not None:
        if record is not None:
            fail("--record keeps what Prometheus tells: leave out --from")
        try:
            with recording.open(encoding="utf-8") as lines:
                return trace_of(read_recording(lines, str(recording)), seconds)
        except (OSError, UnicodeDecodeError) as error:
            fail(f"cannot read {recording}: {error}")
    if prometheus is None:
        fail("name a Prometheus with --prometheus, or a recording with --from")
    now = datetime.now(UTC).timestamp()
    with reading(cluster.kubeconfig, cluster.context) as reader:
        read = recorded_pods(reader, prometheus, stack, now - seconds, now)
    if record is not None:
        write_output(recording_text(read), record)
    return trace_of(read)


_VIEWS: Mapping[Format, Callable[[Advice], str | RenderableType]] = {
    "text": advice_text,
    "md": advice_markdown,
    "json": advice_json,
    "html": advice_page,
}


def _write(file: StackFile, path: Path, advice: Advice) -> None:
    """Write what is recommended into the stack file, if it is valid then."""
    edited, done = file, []
    for pool in advice.pools:
        if pool.recommended is not None and not pool.unknown:
            profile, name = pool.recommended.profile, f"{pool.pool}-advised"
            edited, name = with_profile(edited, pool.pool, profile, name)
            done.append(f"pool {pool.pool} has profile {name}")
    if not done:
        typer.echo("nothing to write", err=True)
        return
    read_cluster(edited)
    target = path.resolve()
    try:
        replace_file(target, edited.text.encode(), target.stat().st_mode & 0o777)
    except OSError as error:
        fail(f"cannot write {path}: {error.strerror}")
    typer.echo(f"wrote {path}: {'; '.join(done)}; `divvy diff HEAD {file.name}` shows it", err=True)
