"""Plan and diff as Markdown, fit for a comment on a pull request."""

from collections.abc import Iterable, Sequence

from divvy.model.phrases import plural, some
from divvy.plan import Difference, Guarantees, NodePlan, Plan, PoolPlan
from divvy.plan.review.review import Review
from divvy.render.views.verdict import (
    DELETED_STACK,
    MARKS,
    effect_words,
    invalid_words,
    verdict_mark,
    verdict_words,
)
from divvy.render.views.words import (
    NAMED,
    AlikeChanges,
    alike_changes,
    bar_cells,
    code,
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

# GitHub refuses longer comments; a character may count as several there.
MAX_COMMENT = 65_536
_ROOM = 60_000
# Of a stack among many.
_NAMED_OF_MANY = 5


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
    lines += ["", *_meanings(promises)]
    return "\n".join(lines) + "\n"


def difference_markdown(difference: Difference) -> str:
    """Return a diff as Markdown."""
    return _page(_document(difference, _ROOM))


def review_markdown(review: Review) -> str:
    """Return the diffs of several stacks as one comment: all verdicts, then the sections."""
    without_diff = len(review.deleted) + len(review.invalid)
    stacks = len(review.differences) + without_diff
    changed = len(review.changed) + without_diff
    lines = [f"## GPU topology: {changed:,} of {plural(stacks, 'stack')} change", ""]
    lines += [
        f"* {verdict_mark(change)} `{change.after}`: {verdict_words(change, _NAMED_OF_MANY)}"
        for change in review.changed
    ]
    lines += [f"* 🛑 `{name}`: {DELETED_STACK}" for name in review.deleted]
    lines += [
        f"* 🛑 `{name}`: {invalid_words(name, reason)}" for name, reason in review.invalid.items()
    ]
    lines += [f"* unchanged: {some(review.unchanged, NAMED)}"] if review.unchanged else []
    lines.append("")
    for number, difference in enumerate(review.changed):
        room = _ROOM - sum(len(line) + 1 for line in lines)
        lines += [*_document(difference, room // (len(review.changed) - number)), ""]
    return _page(lines)


def _document(difference: Difference, room: int) -> list[str]:
    """Return a diff in so many characters: its verdict, and the changes that fit."""
    names = f"`{difference.before}` → `{difference.after}`"
    if not difference:
        return [
            f"## GPU topology {names}: no change",
            "",
            "No object changes, and no node will do anything else.",
        ]
    head = [f"## GPU topology {names}: {count_changes(difference)}", ""]
    head += [f"{verdict_mark(difference)} **{verdict_words(difference)}**", ""]
    head += [f"* {effect}" for effect in effect_words(difference)]
    head.append("")
    changes = [list(_change(alike)) for alike in alike_changes(difference.changes)]
    summary = _summary(difference)
    fitting_changes = _fitting(changes, room - sum(len(line) + 1 for line in [*head, *summary]))
    return [*head, *fitting_changes, *summary]


def _fitting(changes: list[list[str]], room: int) -> list[str]:
    """Return the changes that fit, and how many do not."""
    lines: list[str] = []
    for number, change in enumerate(changes):
        room -= sum(len(line) + 1 for line in change)
        if room < 0:
            rest = len(changes) - number
            lines += [f"**{rest} more** are not shown here: `divvy diff` shows all of them.", ""]
            break
        lines += change
    return lines


def _page(lines: Sequence[str]) -> str:
    """Return lines as one page of at most MAX_COMMENT."""
    text = "\n".join(lines).rstrip("\n") + "\n"
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
        lines.append("")
    if promises := named_promises(difference.changes):
        lines += _meanings(promises)
    return lines


def _meanings(promises: Sequence[Guarantees]) -> list[str]:
    lines = ["<details><summary>What the words mean</summary>", "", "| | | |", "|---|---|---|"]
    lines += [f"| {what} | **{head}** | {words} |" for what, head, words in promise_lines(promises)]
    return [*lines, "", "</details>"]


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
    mark = MARKS[change.disruption.level]
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
            f"| `{row.resource}` | {row.count(row.before)} | {row.count(row.after)} "
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
