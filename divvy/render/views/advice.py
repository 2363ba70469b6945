"""The advice for the terminal and as Markdown, and the words that all its views have."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.advise.advice import Advice, Option, PoolAdvice, duration_words
from divvy.model.phrases import plural, some
from divvy.render.views.terminal import table_of
from divvy.stack.yaml_flow import flow

HEADINGS = ("profile", "GPUs", "nodes", "spare", "idle GPU h", "waiting", "pods affected")


def advice_text(advice: Advice) -> RenderableType:
    """Return the advice, pool by pool."""
    parts: list[RenderableType] = [
        Text.assemble((advice.cluster, "bold"), f": {advice_title(advice)}")
    ]
    for pool in advice.pools:
        parts += ["", Text.assemble((f"pool {pool.pool}", "bold"), f": {pool_title(pool)}")]
        style = "yellow" if pool.unknown else "green" if pool.recommended else ""
        parts.append(Text(verdict(pool), style=style))
        if pool.today is not None:
            table = table_of(
                *(f">{name}" if 0 < at < 6 else name for at, name in enumerate(HEADINGS))
            )
            for row in rows(pool):
                table.add_row(*row)
            parts.append(Padding(table, (0, 0, 0, 2)))
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in details(pool)]
        parts += [Text(f"note: {note}", style="dim") for note in pool_notes(pool)]
    parts += [Text(f"note: {note}", style="dim") for note in advice.notes]
    return Group(*parts)


def advice_markdown(advice: Advice) -> str:
    """Return the advice as Markdown, for an issue or a pull request."""
    lines = [f"## GPU profiles for `{advice.cluster}`", "", f"{advice_title(advice)}."]
    for pool in advice.pools:
        lines += ["", f"### Pool `{pool.pool}`", "", f"{pool_title(pool)}.", ""]
        lines += [f"**{verdict(pool)}**", ""]
        if pool.today is not None:
            lines += [f"| {' | '.join(HEADINGS)} |", "|---|--:|--:|--:|--:|--:|---|"]
            lines += [f"| {' | '.join(row)} |" for row in rows(pool)]
            lines.append("")
        lines += [f"* {line}" for line in (*details(pool), *pool_notes(pool))]
    lines += ["", *(f"* {note}" for note in advice.notes)]
    return "\n".join(lines).rstrip() + "\n"


def advice_title(advice: Advice) -> str:
    """Return over which time the advice looks, and with what headroom."""
    until = datetime.fromtimestamp(advice.end, UTC).strftime("%Y-%m-%d %H:%M UTC")
    recorded = duration_words(advice.end - advice.begin)
    headroom = f"with {advice.headroom * 100:.0f} % of memory above each pod's peak"
    return f"{recorded} until {until}, {headroom}"


def pool_title(pool: PoolAdvice) -> str:
    """Return what a pool is."""
    if not pool.model:
        return f"profile {pool.profile}"
    hardware = f"{plural(pool.nodes, 'node')} of {pool.gpus} × {pool.model}"
    return f"{hardware}, profile {pool.profile}, {plural(pool.pods, 'pod')}"


def verdict(pool: PoolAdvice) -> str:
    """Return what to do, and why, in one sentence."""
    if pool.unknown:
        return f"unknown: {pool.unknown}"
    return f"{'change it' if pool.recommended else 'leave it as it is'}: {pool.reason}"


def rows(pool: PoolAdvice) -> Iterator[tuple[str, ...]]:
    """Yield the rows of the table: today, then the best others."""
    if pool.today is not None:
        yield _row(f"today: {pool.profile}", pool.today)
    for option in pool.best:
        mark = "→ " if option is pool.recommended else ""
        yield _row(f"{mark}{option.words}", option)


def _row(words: str, option: Option) -> tuple[str, ...]:
    counts = [f"{len(pods):,} {what}" for what, pods in affected(option) if what != "waiting"]
    weaker = f"weaker: {', '.join(option.to_allow)}" if option.to_allow else ""
    return (
        words,
        f"{option.gpus:,}",
        f"{option.nodes:,}",
        f"{option.spare_nodes:,}",
        f"{option.idle_hours:,.0f}",
        _waiting(option),
        "; ".join(filter(None, (", ".join(counts), weaker))) or "–",
    )


def _waiting(option: Option) -> str:
    if not option.waiting:
        return "–"
    longest = option.longest_wait
    return f"{len(option.waiting):,}, {'∞' if longest == float('inf') else duration_words(longest)}"


def details(pool: PoolAdvice) -> Iterator[str]:
    """Yield what to write into the stack file, and whom it changes something for."""
    option = pool.recommended
    if option is not None:
        yield f"profile: {flow(option.profile)}"
        for (before, after), count in option.requests.items():
            verb = "asks" if count == 1 else "ask"
            yield f"{plural(count, 'pod')} then {verb} for {_request(after)} instead of {before}"
        if not option.requests:
            yield "pods ask for what they ask for now"
        for change in (*option.lost, *option.gained):
            levels = f"{change.before} → {change.after}"
            yield f"{plural(change.pods, 'pod')}: {change.guarantee} {levels}"
    for shown in (*((pool.today,) if pool.today else ()), *pool.best):
        for what, pods in affected(shown):
            yield f"{what} with {shown.words}: {some(pods)}"


def _request(resource: str) -> str:
    return "a share by size" if resource == "claims" else resource


def affected(option: Option) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what happens to pods, and to which."""
    groups = {
        "refused": option.refused,
        "killed": option.killed,
        "slowed": option.slowed,
        "waiting": tuple(name for name, _ in option.waiting),
    }
    yield from ((what, pods) for what, pods in groups.items() if pods)


def pool_notes(pool: PoolAdvice) -> Iterator[str]:
    """Yield what to know of a pool's figures."""
    yield from pool.notes
    yield from pool.today.notes if pool.today else ()
    if pool.recommended is not None:
        yield from pool.recommended.notes
    if pool.unmeasured and not pool.unknown:
        yield (
            f"how much memory or compute {plural(pool.unmeasured, 'pod')} of {pool.pods:,} used is "
            "unknown: what was not measured counts with all that they were given"
        )
