"""A run as a page: Markdown, for a person and for docs/hardware.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hardware_kit.record import DISCLAIMER, Run, Step, Table

_MARKS = {True: "holds", False: "**does not hold**", None: "told"}
_MAX_LOG_LINES = 30


def page(run: Run) -> str:
    """Render a run as a page of its own."""
    return "\n".join([f"# {title(run)}", "", *body(run, level=2)]) + "\n"


def title(run: Run) -> str:
    """Return which GPU, driver and date; first of all that it is simulated."""
    gpus = ", ".join(run.machine["gpus"])
    simulated = "SIMULATED: " if run.simulated else ""
    return f"{simulated}{gpus}, driver {run.machine['driver']}, {run.began[:10]}"


def body(run: Run, level: int) -> Iterator[str]:
    """Yield the lines below the title; ``level`` is that of the titles of steps."""
    if run.simulated:
        yield from (f"**{DISCLAIMER}**", "")
    machine = run.machine
    yield f"Result: **{run.result}**{', stopped before its end' if run.interrupted else ''}."
    yield f"{machine['system']}, kernel {machine['kernel']}, {machine['processors']} processors."
    yield f"The kit of revision `{run.kit['revision']}`, begun {run.began}, {run.seconds:.0f} s,"
    yield f"with {', '.join(f'`{option}`' for option in run.options) or 'no options'}."
    yield ""
    rows = [
        (step.name, step.title, step.status, f"{step.seconds:.1f}", step.reason)
        for step in run.steps
    ]
    yield from _table(("step", "what it shows", "result", "seconds", "reason"), rows)
    for step in run.steps:
        if step.findings or step.tables or step.log:
            yield from ("", f"{'#' * level} {_heading(run, step)}", "", *_step(step))


def _heading(run: Run, step: Step) -> str:
    text = f"{step.title[0].upper()}{step.title[1:]}"
    return f"{text} (SIMULATED)" if run.simulated else text


def _step(step: Step) -> Iterator[str]:
    if step.findings:
        rows = [
            (finding.what, finding.expected or "–", finding.found, _MARKS[finding.holds])
            for finding in step.findings
        ]
        yield from _table(("what", "expected", "found", ""), rows)
    for table in step.tables:
        yield from ("", f"{table.title}:", "", *_rows(table))
    if step.log:
        yield from ("", "What its programs said last:", "", "```text")
        yield from step.log.replace("```", "'''").strip().splitlines()[-_MAX_LOG_LINES:]
        yield "```"


def _rows(table: Table) -> Iterator[str]:
    if table.rows:
        yield from _table(table.head, table.rows)
    else:
        yield "none"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = tuple(head)
    yield _row(head)
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    texts = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
    return f"| {' | '.join(texts)} |"
