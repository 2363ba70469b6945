"""Which pools of two plans have the same nodes: by what they select, else by their names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from divvy.plan.predict.prediction import Plan, PoolPlan
from divvy.plan.review.settings import SettingChange

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

    @cached_property
    def moves(self) -> tuple[tuple[str, str], ...]:
        """Return the pools, older and newer, that a node may be in; also those of one name."""
        return tuple(
            (old_name, new_name)
            for old_name, older in self.older.items()
            for new_name, newer in self.newer.items()
            if _is_compatible(older, newer)
            and _all_in(older, self.newer) in ("", new_name)
            and _all_in(newer, self.older) in ("", old_name)
        )

    def judged(self, change: SettingChange) -> SettingChange:
        """Return a change with its level where it makes a pool select other nodes."""
        name, is_select, _ = change.path.removeprefix("pools.").partition(".select")
        if is_select and name in self.older and name in self.newer:
            return replace(change, level="new pods only", nodes=f"pool {name}")
        return change


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


def _is_compatible(older: PoolPlan, newer: PoolPlan) -> bool:
    """Return whether a node can have the labels of both."""
    labels = older.select or {}
    return all(labels.get(key, value) == value for key, value in (newer.select or {}).items())


def _all_in(pool: PoolPlan, others: Mapping[str, PoolPlan]) -> str:
    """Return the pool that selects all nodes which a pool selects, "" if none does."""
    if pool.select is None:
        return ""
    labels = pool.select.items()
    wider = (
        name
        for name, other in others.items()
        if other.select is not None and other.select.items() <= labels
    )
    return next(wider, "")
