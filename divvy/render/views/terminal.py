"""Plan and diff for the terminal: right at 80 columns and without colour."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from divvy.model.phrases import some
from divvy.plan import Difference, Guarantees, NodePlan, Plan, PoolPlan
from divvy.plan.review.review import Review
from divvy.plan.review.verdict import verdict
from divvy.render.views.verdict import DELETED_STACK, effect_words, invalid_words, verdict_words
from divvy.render.views.words import (
    NAMED,
    AlikeChanges,
    alike_changes,
    bar_cells,
    count_changes,
    disruption_words,
    gpu_groups,
    levels,
    named_promises,
    plan_title,
    pool_title,
    profile_change,
    promise_changes,
    promise_lines,
    resource_rows,
    signed,
    unchanged_words,
)

_WIDTH = 80
_LEVEL_STYLE = {"none": "green", "new pods only": "yellow", "GPUs must be idle": "red"}


def plan_text(plan: Plan) -> RenderableType:
    """Return a plan: per pool its GPUs, resources and promises, then the sums."""
    parts: list[RenderableType] = [
        Text.assemble((plan.cluster, "bold"), f": {plan_title(plan)}"),
    ]
    promises: list[Guarantees] = []
    for pool in plan.pools:
        parts += ["", _headline(f"pool {pool.name}", pool_title(pool))]
        parts += _pool(pool)
        promises += [row.guarantees for node in _nodes(pool) for row in resource_rows(node)]
    parts += ["", Text("total", style="bold"), _totals(plan)]
    if promises:
        parts += ["", Text("what the words mean", style="bold"), _promises(promises)]
    return Group(*parts)


def difference_text(difference: Difference) -> RenderableType:
    """Return a diff: per pool what changes and what that demands, then the sums."""
    heading = Text.assemble((difference.before, "bold"), " → ", (difference.after, "bold"))
    if not difference:
        return Group(heading.append(": no change, no node will do anything else"))
    style = _LEVEL_STYLE[verdict(difference).severity]
    parts: list[RenderableType] = [
        heading.append(f": {count_changes(difference)}"),
        Text(verdict_words(difference), style=style),
        *(Text(f"· {effect}") for effect in effect_words(difference)),
    ]
    for alike in alike_changes(difference.changes):
        parts += ["", *_change(alike)]
    if unchanged := unchanged_words(difference):
        parts += ["", Text(unchanged)]
    if difference.settings or difference.renamed:
        table = table_of("setting", "before", "after")
        for name, old in difference.renamed.items():
            table.add_row("pool renamed", old, name)
        for setting in difference.settings:
            table.add_row(setting.path, setting.before or "–", setting.after or "–")
        parts += ["", Text("settings", style="bold"), Padding(table, (0, 0, 0, 2))]
    if difference.totals:
        table = table_of("resource", ">before", ">after", ">change")
        for total in difference.totals:
            table.add_row(
                total.resource,
                f"{total.before:,}",
                f"{total.after:,}",
                signed(total.before, total.after),
            )
        parts += ["", Text("total", style="bold"), Padding(table, (0, 0, 0, 2))]
    if promises := named_promises(difference.changes):
        parts += ["", Text("what the words mean", style="bold"), _promises(promises)]
    return Group(*parts)


def review_text(review: Review) -> RenderableType:
    """Return the diffs of several stacks, one after the other."""
    parts: list[RenderableType] = []
    for difference in review.changed:
        parts += [difference_text(difference), ""]
    parts += [Text(f"{name}: {DELETED_STACK}", style="red") for name in review.deleted]
    parts += [
        Text(f"{name}: {invalid_words(name, reason)}", style="red")
        for name, reason in review.invalid.items()
    ]
    if review.unchanged:
        parts.append(Text(f"unchanged: {some(review.unchanged, NAMED)}"))
    return Group(*parts)


def _headline(name: str, words: str) -> Text:
    return Text.assemble((name, "bold"), f": {words}")


def _nodes(pool: PoolPlan) -> tuple[NodePlan, ...]:
    return (*((pool.node,) if pool.node else ()), *pool.overrides.values())


def _pool(pool: PoolPlan) -> Iterable[RenderableType]:
    if pool.node is None:
        yield Text("  add `hardware` to the pool to see what it will advertise")
        return
    yield _node(pool.node, pool.alike)
    for name, node in pool.overrides.items():
        yield Text(f"  node {name}: profile {node.profile}", style="italic")
        yield _node(node, 1)


def _node(node: NodePlan, count: int) -> RenderableType:
    rows = resource_rows(node)
    name = max(len(row.resource) for row in rows)
    lines = [*_bars(node)]
    heading = f"{'resource':<{name}}  per node     all  each device"
    lines.append(Text(heading, style="underline"))
    for row in rows:
        numbers = f"{row.resource:<{name}}  {row.count():>8}  {row.count(count):>6}"
        if len(numbers) + len(row.device) + 4 <= _WIDTH:
            lines.append(Text(f"{numbers}  {row.device}"))
        else:
            lines += [Text(numbers), Text(f"  {row.device}")]
        lines.append(Text(f"  {levels(row.guarantees)}", style="dim"))
    lines += [Text(f"note: {note}", style="yellow") for note in node.notes]
    return Padding(Group(*lines), (0, 0, 0, 2))


def _bars(node: NodePlan) -> Iterable[Text]:
    groups = gpu_groups(node)
    width = max(len(group.label) for group in groups)
    for group in groups:
        bar = Text(f"{group.label:<{width}} ▕")
        for label, used in bar_cells(group.gpu):
            bar.append(label, style="reverse" if used else "dim")
            bar.append("▏")
        yield bar


def _change(alike: AlikeChanges) -> Iterable[RenderableType]:
    change = alike.change
    yield _headline(alike.pool_words, f"{alike.title}, {profile_change(change)}")
    older = change.before if change.nodes_before else None
    newer = change.after if change.nodes_after else None
    for sign, node in (("-", older), ("+", newer)):
        if node is not None and (older is None or newer is None or older.gpus != newer.gpus):
            for bar in _bars(node):
                yield Text(f"  {sign} ").append_text(bar)
    table = table_of("resource", ">before", ">after", ">change")
    for row in change.resources:
        table.add_row(
            row.resource,
            row.count(row.before),
            row.count(row.after),
            signed(row.before, row.after),
        )
    yield Padding(table, (0, 0, 0, 2))
    for row in change.resources:
        yield from _promised(row.resource, row.guarantees_before, row.guarantees_after)
    style = _LEVEL_STYLE[change.disruption.level]
    yield Padding(Text.assemble("disruption ", (disruption_words(change), style)), (0, 0, 0, 2))


def _promised(
    resource: str, before: Guarantees | None, after: Guarantees | None
) -> Iterable[RenderableType]:
    if before == after:
        return
    if before is None or after is None:
        sign, promise = ("+", after) if before is None else ("-", before)
        assert promise is not None
        yield Text(f"  {sign} {resource}")
        yield Text(f"    {levels(promise)}", style="dim")
        return
    for what, older, newer in promise_changes(before, after):
        yield Text(f"  ~ {resource} {what}")
        yield Padding(Text(f"{older} → {newer}", style="dim"), (0, 0, 0, 4))


def _totals(plan: Plan) -> RenderableType:
    table = table_of("resource", ">devices")
    for name, number in plan.totals.items():
        table.add_row(name, f"{number:,}")
    return Padding(table, (0, 0, 0, 2))


def _promises(promises: Sequence[Guarantees]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    last = ""
    for what, head, meaning in promise_lines(promises):
        table.add_row("" if what == last else what, head, Text(meaning, style="dim"))
        last = what
    return Padding(table, (0, 0, 0, 2))


def table_of(*columns: str) -> Table:
    """Return a table of these columns; those that begin with > are for numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline", pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return table
