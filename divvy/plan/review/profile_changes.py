"""Changes of profiles beyond the prediction: of GPUs by UUID, nodes to come, labelled nodes.

``Profiles`` are a stack file's. Two of them give the settings that differ, and how much that
disturbs pods on GPUs that the prediction does not show: pool by pool, at worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from divvy.model import Cluster, Rule
from divvy.plan.review.level import Level, worst_level
from divvy.plan.review.setting_changes import SettingChange, flat

_Rules = tuple[Rule, ...]


@dataclass(frozen=True)
class Profiles:
    """The rules of every profile, and where pools choose one.

    ``chosen`` are the names of profiles by path: ``pools.<pool>.profile``,
    ``pools.<pool>.overrides.<node>``. ``predicted`` are the paths of nodes that the prediction
    shows.
    """

    rules: Mapping[str, _Rules] = field(default_factory=dict)
    chosen: Mapping[str, str] = field(default_factory=dict)
    predicted: frozenset[str] = frozenset()

    @property
    def by_mps(self) -> bool:
        """Return whether one of them shares GPUs by MPS."""
        return any(rule.mps is not None for rules in self.rules.values() for rule in rules)

    def at(self, path: str) -> _Rules | None:
        """Return the rules that nodes follow: an override's, else its pool's; None for no pool."""
        name = self.chosen.get(path, self.chosen.get(_pool_path(path)))
        return None if name is None else self.rules[name]

    def predicts(self, path: str) -> bool:
        """Return whether the prediction shows nodes: without an override, among its pool's."""
        return (path if path in self.chosen else _pool_path(path)) in self.predicted

    def of_pool(self, pool: str) -> list[_Rules]:
        """Return the rules that nodes of a pool may follow."""
        paths = f"pools.{pool}.profile", f"pools.{pool}.overrides."
        names = {name for path, name in self.chosen.items() if path.startswith(paths)}
        return [self.rules[name] for name in sorted(names)]


def _pool_path(path: str) -> str:
    return f"{path.partition('.overrides.')[0].removesuffix('.profile')}.profile"


def profile_path(pool: str, node: str | None) -> str:
    """Return the path of a pool's profile, or of that of one node of it."""
    return f"pools.{pool}.profile" if node is None else f"pools.{pool}.overrides.{node}"


def profiles_of(cluster: Cluster) -> Profiles:
    """Return the profiles; a label on a node may choose those, too, that no pool names."""
    chosen: dict[str, str] = {}
    predicted: set[str] = set()
    for name, pool in cluster.pools.items():
        count = 0 if pool.hardware is None else pool.hardware.count
        chosen[profile_path(name, None)] = pool.profile
        overrides = {profile_path(name, node): own for node, own in pool.overrides.items()}
        chosen |= overrides
        predicted |= {profile_path(name, None)} if count > len(overrides) else set()
        predicted |= overrides.keys() if count else set()
    rules = {name: profile.rules for name, profile in cluster.profiles.items()}
    return Profiles(rules, chosen, frozenset(predicted))


def profile_changes(
    before: Profiles, after: Profiles, shown: frozenset[str]
) -> Iterator[tuple[SettingChange, str, Level]]:
    """Yield what differs, with the nodes that it concerns and how much it disturbs their pods.

    ``shown`` are the paths of nodes whose change the prediction shows.
    """
    for path in sorted({*before.chosen, *after.chosen}):
        older, newer = before.at(path), after.at(path)
        if older == newer:
            continue
        by_uuid = any(_by_uuid(rules) for rules in (older, newer) if rules)
        sides = [side.predicts(path) for side in (before, after)]
        if older is None or newer is None:
            if any(sides) and not by_uuid:
                continue
            level: Level = "none"
        else:
            # Of claims the prediction knows only how much there can be at most.
            by_claims = all(any(rule.claims for rule in rules) for rules in (older, newer))
            is_predicted = all(sides) and not by_uuid
            if is_predicted and path in shown and not by_claims:
                continue
            level = "none" if is_predicted else held_otherwise(older, newer)
        change = SettingChange(path, *map(_text, (older, newer)))
        yield change, f"pool {path.split('.')[1]}", level
    yield from _unchosen(before, after)


def _unchosen(before: Profiles, after: Profiles) -> Iterator[tuple[SettingChange, str, Level]]:
    """Yield names that come and go, and other rules of those that no pool chooses.

    A name is an interface: a node's label may choose it.
    """
    for name in sorted({*before.rules, *after.rules}):
        path, older, newer = f"profiles.{name}", before.rules.get(name), after.rules.get(name)
        nodes = f"nodes whose label chooses profile {name}"
        if older is None or newer is None:
            there = ("" if rules is None else "in the stack file" for rules in (older, newer))
            yield SettingChange(path, *there), nodes, "none"
        elif older != newer and name not in {*before.chosen.values(), *after.chosen.values()}:
            change = SettingChange(path, _text(older), _text(newer))
            yield change, nodes, held_otherwise(older, newer)


def held_otherwise(before: _Rules, after: _Rules) -> Level:
    """Return what other rules do to pods on GPUs of which it is not known which rule selects them.

    Where both sides select alike, each rule is compared with the one that takes its place.
    """
    if before == after:
        return "none"
    is_alike = [rule.devices for rule in before] == [rule.devices for rule in after]
    # GPUs that no rule selects are whole.
    pairs = zip(before, after, strict=True) if is_alike else product(*map(_all, (before, after)))
    is_held = all(_held_as(older) == _held_as(newer) for older, newer in pairs)
    return "new pods only" if is_held else "GPUs must be idle"


def level_of_move(before: list[_Rules], after: list[_Rules]) -> Level:
    """Return what nodes go through at worst that follow one of these, and then one of those."""
    return worst_level(held_otherwise(*pair) for pair in product(before, after))


def _all(rules: _Rules) -> _Rules:
    return rules if rules[-1].devices.everything else (*rules, Rule())


def _held_as(rule: Rule) -> tuple[object, ...]:
    """Return as what a pod holds a GPU, as far as its rule tells: see ``Offer.held_as``."""
    sharing = rule.sharing
    names = None if sharing is None else (sharing.rename_by_default, sharing.resource_name)
    return rule.mig, rule.claims is None, rule.mps is None, names


def _by_uuid(rules: _Rules) -> bool:
    return any(rule.devices.uuids for rule in rules)


def _text(rules: _Rules | None) -> str:
    return "; ".join(map(_rule_text, rules or ()))


def _rule_text(rule: Rule) -> str:
    value = rule.model_dump(mode="json", by_alias=True, exclude={"devices"}, exclude_defaults=True)
    content = ", ".join(f"{path} {text}".strip() for path, text in sorted(flat((), value)))
    content = content or ("whole GPUs" if rule.claims is None else "whole GPUs by claims")
    devices = rule.devices
    names = [devices.model] if devices.model else [*devices.uuids, *map(str, devices.indices)]
    return content if devices.everything else f"{', '.join(names)}: {content}"
