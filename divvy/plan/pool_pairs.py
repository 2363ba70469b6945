"""Which pools of two plans have the same nodes: by what they select, else by their names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from divvy.plan.level import Level
from divvy.plan.prediction import NodePlan, Plan, PoolPlan
from divvy.plan.settings import SettingChange

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class PoolPairs:
    """The pools of two plans, each under its name in the newer one.

    ``renamed`` maps the new names of pools that select the same nodes to their old ones,
    ``names`` the old names to those that are used here.
    """

    older: Mapping[str, PoolPlan]
    newer: Mapping[str, PoolPlan]
    renamed: Mapping[str, str]
    names: Mapping[str, str]

    @cached_property
    def defaults(self) -> tuple[str, str]:
        """Return the pools that have the nodes which no other selects, "" without one."""
        before, after = (
            next((name for name, pool in pools.items() if pool.select is None), "")
            for pools in (self.older, self.newer)
        )
        return before, after

    def as_renamed(self, by_path: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return what stands at paths of the older plan with the pools under their new names."""
        result = {}
        for path, value in by_path.items():
            for old, new in self.names.items():
                if path.startswith(f"pools.{old}."):
                    path = f"pools.{new}.{path.removeprefix(f'pools.{old}.')}"
                    break
            result[path] = value
        return result

    def in_default(self, name: str, node: str | None) -> tuple[NodePlan | None, NodePlan | None]:
        """Return what nodes are in the default pool before their pool comes, and after it goes.

        ``node`` is one of them by name, None for those that are alike.
        """
        older, newer = self.older.get(name), self.newer.get(name)
        default_before, default_after = self.defaults
        return (
            None if older else _node_in(self.older.get(default_before), newer, node),
            None if newer else _node_in(self.newer.get(default_after), older, node),
        )

    def judged(self, change: SettingChange) -> SettingChange:
        """Return a change with its level where it makes a pool select other nodes.

        What these have offered is not known. A narrower selector only loses nodes, unless another
        pool may be where they go.
        """
        for name in self._reselected:
            if change.path.startswith(f"pools.{name}.select"):
                before, after = self.older[name].select or {}, self.newer[name].select or {}
                only_loses = before.items() <= after.items() and not self._may_gain
                level: Level = "new pods only" if only_loses else "GPUs must be idle"
                return replace(change, level=level, nodes=f"pool {name}")
        return change

    @cached_property
    def _reselected(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, pool in self.newer.items()
            if name in self.older and self.older[name].select != pool.select
        )

    @property
    def _may_gain(self) -> bool:
        """Return whether a pool may get nodes that another one loses."""
        _, default_after = self.defaults
        has_new = self.newer.keys() - self.older.keys()
        return bool(default_after or has_new or len(self._reselected) > 1)


def pair_pools(before: Plan, after: Plan) -> PoolPairs:
    """Pair the pools of two plans."""
    renamed = {
        pool.name: old.name
        for pool in after.pools
        for old in before.pools
        if pool.select == old.select and pool.name != old.name
    }
    names = {old: new for new, old in renamed.items()}
    for pool in before.pools:
        if pool.name in renamed and pool.name not in names:
            # Its nodes are in no pool, or in one that selects otherwise; its name is another's.
            names[pool.name] = f"{pool.name} (before)"
    return PoolPairs(
        {names.get(pool.name, pool.name): pool for pool in before.pools},
        {pool.name: pool for pool in after.pools},
        renamed,
        names,
    )


def _node_in(default: PoolPlan | None, pool: PoolPlan | None, node: str | None) -> NodePlan | None:
    """Return what a node of a pool is in the default pool, if that has nodes like it."""
    if default is None or default.node is None or pool is None or pool.node is None:
        return None
    if default.model != pool.model or len(default.node.gpus) != len(pool.node.gpus):
        return None
    return default.overrides.get(node, default.node) if node else default.node
