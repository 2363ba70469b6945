"""Plan and diff as Markdown, fit for a comment on a pull request."""

from collections.abc import Iterable

from divvy.plan import Difference, Guarantees, NodePlan, Plan, PoolPlan
from divvy.render.words import (
    AlikeChanges,
    alike_changes,
    bar_cells,
    code,
    count_changes,
    disruption_words,
    gpu_groups,
    levels,
    plan_title,
    pool_title,
    profile_change,
    promise_changes,
    promise_lines,
    resource_rows,
    signed,
    unchanged_words,
)

# GitHub refuses longer comments; a character may count as several there.
MAX_COMMENT = 65_536
_ROOM = 60_000

_MARK = {"none": "✅", "new pods only": "🔶", "GPUs must be idle": "🛑"}


def plan_markdown(plan: Plan) -> str:
    """Return a plan as Markdown."""
    lines = [f"## GPU plan of `{plan.cluster}`", "", plan_title(plan), ""]
    promises: list[Guarantees] = []
    for pool in plan.pools:
        lines += [f"### Pool `{pool.name}`", "", pool_title(pool), "", *_pool(pool)]
        nodes = (*((pool.node,) if pool.node else ()), *pool.overrides.values())
        promises += [row.guarantees for node in nodes for row in resource_rows(node)]
    lines += ["### Total", "", "| resource | devices |", "|---|--:|"]
    lines += [f"| `{name}` | {number:,} |" for name, number in plan.totals.items()]
    lines += ["", "<details><summary>What the words mean</summary>", ""]
    lines += ["| | | |", "|---|---|---|"]
    lines += [f"| {what} | **{head}** | {words} |" for what, head, words in promise_lines(promises)]
    lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def difference_markdown(difference: Difference) -> str:
    """Return a diff as Markdown."""
    names = f"`{difference.before}` → `{difference.after}`"
    if not difference:
        return f"## GPU topology {names}: no change\n\nNo node will do anything else.\n"
    count = count_changes(difference)
    head = [f"## GPU topology {names}: {count}", ""]
    changes = [list(_change(alike)) for alike in alike_changes(difference.changes)]
    return _fitting(head, changes, _summary(difference))


def _fitting(head: list[str], changes: list[list[str]], summary: list[str]) -> str:
    """Return one page of at most MAX_COMMENT: the changes that fit, and how many do not."""
    room = _ROOM - sum(len(line) + 1 for line in [*head, *summary])
    shown: list[str] = []
    for number, lines in enumerate(changes):
        room -= sum(len(line) + 1 for line in lines)
        if room < 0:
            rest = len(changes) - number
            shown += [f"**{rest} more** are not shown here: `divvy diff` shows all of them.", ""]
            break
        shown += lines
    text = "\n".join([*head, *shown, *summary]).rstrip("\n") + "\n"
    if len(text) <= MAX_COMMENT:
        return text
    cut = text[:_ROOM].rpartition("\n")[0]
    return f"{cut}\n\nThe rest is not shown here: `divvy diff` shows all of it.\n"


def _summary(difference: Difference) -> list[str]:
    unchanged = unchanged_words(difference)
    lines: list[str] = [unchanged, ""] if unchanged else []
    if difference.settings or difference.renamed:
        lines += ["### Settings", "", "| setting | before | after |", "|---|---|---|"]
        lines += [
            f"| pool renamed | {code(old)} | {code(name)} |"
            for name, old in difference.renamed.items()
        ]
        lines += [
            f"| {code(setting.path)} | {code(setting.before)} | {code(setting.after)} |"
            for setting in difference.settings
        ]
        lines.append("")
    if difference.totals:
        lines += ["### Total", "", "| resource | before | after | change |", "|---|--:|--:|--:|"]
        lines += [
            f"| `{total.resource}` | {total.before:,} | {total.after:,} "
            f"| {signed(total.before, total.after)} |"
            for total in difference.totals
        ]
    return lines


def _pool(pool: PoolPlan) -> Iterable[str]:
    if pool.node is None:
        yield from ("Add `hardware` to the pool to see what it will advertise.", "")
        return
    yield from _node(pool.node, pool.alike)
    for name, node in pool.overrides.items():
        yield from (f"Node `{name}`: profile {node.profile}", "")
        yield from _node(node, 1)


def _node(node: NodePlan, count: int) -> Iterable[str]:
    yield from ("```text", *_bars(node), "```", "")
    yield "| resource | per node | all | each device | guarantees |"
    yield "|---|--:|--:|---|---|"
    for row in resource_rows(node):
        yield (
            f"| `{row.resource}` | {row.count()} | {row.count(count)} "
            f"| {row.device} | {levels(row.guarantees)} |"
        )
    yield ""
    for note in node.notes:
        yield from (f"> {note}", "")


def _bars(node: NodePlan) -> Iterable[str]:
    groups = gpu_groups(node)
    width = max(len(group.label) for group in groups)
    for group in groups:
        cells = "▏".join(label for label, _ in bar_cells(group.gpu))
        yield f"{group.label:<{width}} ▕{cells}▏"


def _change(alike: AlikeChanges) -> Iterable[str]:
    change = alike.change
    mark = _MARK[change.disruption.level]
    whose = alike.pool_words if len(alike.pools) > 1 else f"Pool `{change.pool}`"
    yield f"### {whose}: {alike.title}, {profile_change(change)}"
    yield ""
    older = change.before if change.nodes_before else None
    newer = change.after if change.nodes_after else None
    if older is None or newer is None or older.gpus != newer.gpus:
        yield "```diff"
        yield from (f"- {bar}" for bar in (_bars(older) if older else ()))
        yield from (f"+ {bar}" for bar in (_bars(newer) if newer else ()))
        yield from ("```", "")
    yield from (f"{mark} **Disruption** {disruption_words(change)}", "")
    yield from ("| resource | before | after | change | guarantees |", "|---|--:|--:|--:|---|")
    for row in change.resources:
        yield (
            f"| `{row.resource}` | {row.before:,} | {row.after:,} "
            f"| {signed(row.before, row.after)} "
            f"| {_promised(row.guarantees_before, row.guarantees_after)} |"
        )
    yield ""


def _promised(before: Guarantees | None, after: Guarantees | None) -> str:
    if before is not None and after is not None:
        changed = promise_changes(before, after)
        return "<br>".join(f"{what}: {old} → {new}" for what, old, new in changed) or "the same"
    if after is not None:
        return f"new: {levels(after)}"
    return f"gone: {levels(before)}" if before is not None else ""
