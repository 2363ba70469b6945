"""The verdict on a diff in words: the first lines of every view, which are never cut."""

from divvy.model.phrases import plural, some
from divvy.plan import Difference
from divvy.plan.review.verdict import Verdict, verdict
from divvy.render.views.words import NAMED

MARKS = {"none": "✅", "new pods only": "🔶", "GPUs must be idle": "🛑"}
_POLICIES = {
    "wait": "each change waits until the pods that hold them end",
    "evict": "pods that hold them are EVICTED",
    "never": "GPUs that a pod holds keep their layout",
}
DELETED_STACK = (
    "the stack file is deleted: its objects stay in the cluster and nothing manages them; "
    "run `divvy destroy` with the file before, if they are to go"
)


def invalid_words(stack: str, reason: str) -> str:
    """Describe why a stack's older file cannot be compared with: the reason's first line."""
    first = reason.splitlines()[0].rstrip(":")
    return f"{first}: what changes is not known; divvy plan -s {stack} shows what it will be"


def verdict_mark(difference: Difference) -> str:
    """Return the sign of a diff's worst disruption."""
    return MARKS[verdict(difference).severity]


def verdict_words(difference: Difference, names: int = 20) -> str:
    """Describe in one sentence what a diff does to running pods; name at most so many pools."""
    result = verdict(difference)
    words = _words_of_level(result, names)
    if result.ends_clients:
        words += "; the agents restart, and what runs as a client of MPS ENDS: restart those pods"
    elif difference.objects.restarted:
        words += "; Divvy's own pods restart"
    return words


def _words_of_level(result: Verdict, names: int) -> str:
    nodes = plural(result.nodes, "node")
    pools = f"pool{'' if len(result.pools) == 1 else 's'} {some(result.pools, names)}"
    where = pools if result.pools else ""
    if result.unpredicted:
        where = "; ".join(filter(None, (where, some(result.unpredicted, names))))
    match result.level:
        case "GPUs must be idle":
            gpus = _with_unpredicted(f"{plural(result.gpus, 'GPU')} on {nodes}", "GPUs", result)
            return f"{gpus} must be idle; {_POLICIES[result.policy]}: {where}"
        case "new pods only":
            changed = _with_unpredicted(nodes, "nodes", result)
            return f"Running pods keep what they have; new pods find a change on {changed}: {where}"
        case "none" if result.nodes:
            return f"No running pod is touched; {nodes} come with something new: {pools}"
        case "none" if result.ends_clients:
            return "No node offers anything else"
        case "none":
            return "No node offers anything else, and no running pod is touched"


def _with_unpredicted(predicted: str, unpredicted: str, result: Verdict) -> str:
    parts = [predicted] if result.pools else []
    if result.unpredicted:
        parts.append(f"{unpredicted} that the plan does not show")
    return " and ".join(parts)


def effect_words(difference: Difference) -> tuple[str, ...]:
    """List what a reviewer must know beside the topology, a sentence each."""
    return (
        *_withdrawn(difference, verdict(difference)),
        *difference.objects.effects,
        *_objects(difference),
    )


def _withdrawn(difference: Difference, result: Verdict) -> list[str]:
    lines = []
    if result.withdrawn:
        lines.append(
            f"no node offers {some(result.withdrawn, NAMED)} any more: pods that request it "
            "stay pending"
        )
    if difference.withdrawn_profiles:
        lines.append(
            f"profiles that go: {some(difference.withdrawn_profiles, NAMED)}; a node whose label "
            "divvy.gpu/profile names one keeps its last layout"
        )
    return lines


def _objects(difference: Difference) -> list[str]:
    changes = difference.objects
    sides = (
        ("created", changes.created),
        ("updated", changes.updated),
        ("deleted", changes.deleted),
    )
    parts = [f"{len(names)} {verb} ({some(names, NAMED)})" for verb, names in sides if names]
    return [f"objects: {', '.join(parts)}"] if parts else []
