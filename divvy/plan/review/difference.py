"""The topology diff: what changes for whom between two plans."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from divvy.model.api_names import AGENT
from divvy.plan.predict.guarantees import Guarantees
from divvy.plan.predict.prediction import NodePlan, Plan, PoolPlan
from divvy.plan.review.disruption import Disruption, disruption
from divvy.plan.review.level import LEVELS, Level, worst_level
from divvy.plan.review.object_changes import NO_OBJECTS, ObjectChanges
from divvy.plan.review.profile_changes import level_of_move, profile_changes, profile_path
from divvy.plan.review.setting_changes import SettingChange, setting_changes


@dataclass(frozen=True)
class ResourceChange:
    """One resource of some nodes: devices in all and per node, and what each guarantees.

    The guarantees are None on the side where the resource does not exist; where
    a name means several things they are those of its first device. ``at_most``: devices
    are made when pods claim them, one kind in place of another.
    """

    resource: str
    before: int
    after: int
    per_node_before: int
    per_node_after: int
    guarantees_before: Guarantees | None
    guarantees_after: Guarantees | None
    at_most: bool = False

    def count(self, number: int) -> str:
        """Return a number of devices: ``28``, or ``≤ 28`` where pods claim them."""
        return f"{'≤ ' if self.at_most and number else ''}{number:,}"


@dataclass(frozen=True)
class Change:
    """What changes for the nodes of a pool that are alike, or for one node with an override.

    ``nodes_before`` and ``nodes_after`` count them; ``node`` is the name of the
    one node, None for those that follow the pool.
    """

    pool: str
    node: str | None
    nodes_before: int
    nodes_after: int
    before: NodePlan | None
    after: NodePlan | None
    resources: tuple[ResourceChange, ...]
    disruption: Disruption

    @property
    def nodes(self) -> int:
        """Return how many nodes change: those of the newer file, else those that leave it."""
        return self.nodes_after or self.nodes_before

    @property
    def gpus(self) -> int:
        """Return how many GPUs of all these nodes cause the disruption."""
        return len(self.disruption.gpus) * self.nodes


@dataclass(frozen=True)
class TotalChange:
    """One resource of the whole cluster, before and after."""

    resource: str
    before: int
    after: int


@dataclass(frozen=True)
class Difference:
    """All changes between two plans, the most disruptive first; empty if nothing changes.

    ``settings`` are changes that the topology does not show; ``renamed`` maps the new names of
    pools to their old ones; ``unchanged`` are the pools of which nothing changes; ``objects`` is
    what becomes of the cluster's objects; ``policy`` is the newer file's ``change.policy``;
    ``withdrawn_profiles`` are names that a node's label may still choose; ``ends_clients``: agents
    restart, and what MPS has served until then ends with them; ``unpredicted`` says of which nodes
    pods may be disturbed more than ``changes`` show, and how much at worst.
    """

    before: str
    after: str
    changes: tuple[Change, ...]
    totals: tuple[TotalChange, ...]
    settings: tuple[SettingChange, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    unchanged: tuple[str, ...] = ()
    objects: ObjectChanges = NO_OBJECTS
    policy: str = "wait"
    withdrawn_profiles: tuple[str, ...] = ()
    ends_clients: bool = False
    unpredicted: Mapping[str, Level] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.changes or self.settings or self.renamed or self.objects)


def diff(before: Plan, after: Plan, objects: ObjectChanges = NO_OBJECTS) -> Difference:
    """Compare two plans, pool by pool; ``objects`` is what becomes of the cluster's objects."""
    renamed = _renamed_pools(before, after)
    before = _under_new_names(before, {old: new for new, old in renamed.items()})
    older, newer = ({pool.name: pool for pool in side.pools} for side in (before, after))
    changes = [
        change
        for name in {**newer, **older}
        for change in _pool_changes(name, older.get(name), newer.get(name))
    ]
    shown = frozenset(profile_path(change.pool, change.node) for change in changes)
    profile_steps = list(profile_changes(before.profiles, after.profiles, shown))
    settings = (
        *setting_changes(before.settings, after.settings),
        *(setting for setting, _, _ in profile_steps),
    )
    levels = [*_moves(before, after), *((nodes, level) for _, nodes, level in profile_steps)]
    unpredicted = {
        nodes: worst_level(level for name, level in levels if name == nodes)
        for nodes in dict.fromkeys(nodes for nodes, _ in levels)
    }
    changed = {*renamed, *(change.pool for change in changes)}
    return Difference(
        before.cluster,
        after.cluster,
        tuple(_under(after.policy, change) for change in sorted(changes, key=_by_disruption)),
        resource_counts(before.totals, after.totals),
        settings,
        renamed,
        tuple(
            name
            for name in newer
            if name in older
            and name not in changed
            and not any(setting.path.startswith(f"pools.{name}.") for setting in settings)
        ),
        objects,
        after.policy,
        tuple(sorted(before.profiles.rules.keys() - after.profiles.rules.keys())),
        f"DaemonSet {AGENT}" in objects.restarted and before.profiles.by_mps,
        unpredicted,
    )


def _renamed_pools(before: Plan, after: Plan) -> dict[str, str]:
    """Return the old names of pools that select the same nodes under a new one."""
    older, newer = ({pool.name for pool in side.pools} for side in (before, after))
    return {
        pool.name: old.name
        for pool in after.pools
        for old in before.pools
        if pool.select == old.select and pool.name not in older and old.name not in newer
    }


def _under_new_names(plan: Plan, names: Mapping[str, str]) -> Plan:
    """Return a plan with renamed pools under their new names, in paths too."""

    def renamed(path: str) -> str:
        start, _, rest = path.partition(".")
        pool, _, below = rest.partition(".")
        return f"pools.{names[pool]}.{below}" if start == "pools" and pool in names else path

    profiles = replace(
        plan.profiles,
        chosen={renamed(path): profile for path, profile in plan.profiles.chosen.items()},
        predicted=frozenset(map(renamed, plan.profiles.predicted)),
    )
    return replace(
        plan,
        pools=tuple(replace(pool, name=names.get(pool.name, pool.name)) for pool in plan.pools),
        settings={renamed(path): text for path, text in plan.settings.items()},
        profiles=profiles,
    )


def _moves(before: Plan, after: Plan) -> Iterator[tuple[str, Level]]:
    """Yield what nodes may go through that one pool had and another has, by the newer pool.

    Only a pool that comes, goes or selects otherwise gives nodes away or gets any.
    """
    older, newer = ({pool.name: pool for pool in side.pools} for side in (before, after))
    stays = {name for name in newer if name in older and newer[name].select == older[name].select}
    for old, new in product(before.pools, after.pools):
        if {old.name, new.name} <= stays or 0 in (old.count, new.count):
            continue
        if old.name == new.name:
            yield f"pool {new.name}", "new pods only"
        if _is_compatible(old, new):
            rules = before.profiles.of_pool(old.name), after.profiles.of_pool(new.name)
            yield f"pool {new.name}", level_of_move(*rules)


def _is_compatible(older: PoolPlan, newer: PoolPlan) -> bool:
    """Return whether a node can have the labels of both."""
    labels = older.select or {}
    return all(labels.get(key, value) == value for key, value in (newer.select or {}).items())


def _by_disruption(change: Change) -> tuple[int, int]:
    """Return what puts the change first that disturbs most."""
    return -LEVELS.index(change.disruption.level), -change.gpus


def _under(policy: str, change: Change) -> Change:
    """Return what the policy does where pods are in the way."""
    effect = change.disruption
    if effect.level != "GPUs must be idle" or policy == "wait":
        return change
    what = (
        "change.policy is evict: pods that hold them are evicted"
        if policy == "evict"
        else "change.policy is never: GPUs in use are not repartitioned"
    )
    return replace(change, disruption=replace(effect, reason=f"{effect.reason}; {what}"))


def resource_counts(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[TotalChange, ...]:
    """Return the resources whose numbers differ, by name."""
    return tuple(
        TotalChange(name, before.get(name, 0), after.get(name, 0))
        for name in sorted({*before, *after})
        if before.get(name, 0) != after.get(name, 0)
    )


def _pool_changes(name: str, before: PoolPlan | None, after: PoolPlan | None) -> list[Change]:
    apart = sorted({*(before.overrides if before else ()), *(after.overrides if after else ())})
    older, newer = _present(before, apart), _present(after, apart)
    alike = _change(
        name,
        None,
        (before.node if before else None, _nodes(before) - len(older)),
        (after.node if after else None, _nodes(after) - len(newer)),
    )
    single = [
        _change(
            name,
            node,
            (older.get(node), int(node in older)),
            (newer.get(node), int(node in newer)),
        )
        for node in apart
    ]
    return [change for change in (alike, *single) if change is not None]


def _nodes(pool: PoolPlan | None) -> int:
    return 0 if pool is None else pool.count or 0


def _present(pool: PoolPlan | None, apart: list[str]) -> dict[str, NodePlan]:
    """Return the plans of those nodes that either side overrides.

    A node that is not overridden here follows the pool, if the pool is large
    enough to have it.
    """
    if pool is None or pool.node is None:
        return {}
    followers = [node for node in apart if node not in pool.overrides][: pool.alike]
    return {**pool.overrides, **{node: pool.node for node in followers}}


def _change(
    pool: str,
    node: str | None,
    before: tuple[NodePlan | None, int],
    after: tuple[NodePlan | None, int],
) -> Change | None:
    (older, nodes_before), (newer, nodes_after) = before, after
    if not nodes_before and not nodes_after:
        return None
    resources = _resources(older, nodes_before, newer, nodes_after)
    effect = disruption(older if nodes_before else None, newer if nodes_after else None)
    if not resources and effect.level == "none":
        return None
    return Change(pool, node, nodes_before, nodes_after, older, newer, resources, effect)


def _resources(
    before: NodePlan | None, nodes_before: int, after: NodePlan | None, nodes_after: int
) -> tuple[ResourceChange, ...]:
    older, newer = _offered(before), _offered(after)
    changes = []
    for name in sorted({*older, *newer}):
        count_before, promise_before = older.get(name, (0, None))
        count_after, promise_after = newer.get(name, (0, None))
        total_before, total_after = count_before * nodes_before, count_after * nodes_after
        promised = promise_before != promise_after and total_before and total_after
        if total_before != total_after or promised:
            changes.append(
                ResourceChange(
                    name,
                    total_before,
                    total_after,
                    count_before,
                    count_after,
                    promise_before if total_before else None,
                    promise_after if total_after else None,
                    name in _claimable(before) | _claimable(after),
                )
            )
    return tuple(changes)


def _claimable(node: NodePlan | None) -> frozenset[str]:
    return frozenset(kind.name for kind in node.claimable) if node else frozenset()


def _offered(node: NodePlan | None) -> dict[str, tuple[int, Guarantees]]:
    if node is None:
        return {}
    promises = {device.resource: device.guarantees for device in reversed(node.devices)}
    promises |= {kind.name: kind.guarantees for kind in node.claimable}
    return {name: (number, promises[name]) for name, number in node.offered.items()}
