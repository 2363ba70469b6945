"""What profiles say beyond the prediction: to GPUs and nodes that are not there by now."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from divvy.model import Cluster, DeviceSelector, Hardware, Rule, hardware_model
from divvy.plan.canonical_rules import canonical_rules, content, order_counts, outcome, rank
from divvy.plan.settings import SettingChange, flat, setting_changes

_WHOLE = "whole GPUs"
_WHOLE_BY_CLAIMS = "whole GPUs by claims"
_VARIOUS = "as the other rules say"


@dataclass(frozen=True)
class Follower:
    """The profile of a pool, or of one node of it, as canonical rules.

    ``predicted`` are the rules that take the GPUs which the prediction shows, by their indices; ()
    where it shows none.
    """

    rules: tuple[Rule, ...]
    predicted: tuple[Rule, ...]


@dataclass(frozen=True)
class Profiles:
    """Every profile as canonical rules; ``followed`` are the names that pools name.

    ``followers`` are by their paths: ``pools.<pool>.profile``, ``pools.<pool>.overrides.<node>``.
    """

    rules: Mapping[str, tuple[Rule, ...]]
    followed: frozenset[str]
    followers: Mapping[str, Follower]


def follower_path(pool: str, node: str | None) -> str:
    """Return the path of a pool's profile, or of that of one node of it."""
    return f"pools.{pool}.profile" if node is None else f"pools.{pool}.overrides.{node}"


def profiles_of(cluster: Cluster) -> Profiles:
    """Return the profiles; a label on a node may choose those, too, that no pool names."""
    pools = cluster.pools.values()
    followed = {name for pool in pools for name in (pool.profile, *pool.overrides.values())}
    rules = {name: canonical_rules(one.rules) for name, one in cluster.profiles.items()}
    known: dict[tuple[str, str, int], Follower] = {}

    def follower(name: str, hardware: Hardware | None, nodes: int) -> Follower:
        if hardware is None or nodes <= 0:
            return Follower(rules[name], ())
        key = (name, hardware.model, hardware.gpus)
        if key not in known:
            known[key] = Follower(rules[name], _predicted(rules[name], hardware))
        return known[key]

    followers: dict[str, Follower] = {}
    for name, pool in cluster.pools.items():
        count = 0 if pool.hardware is None else pool.hardware.count
        path = follower_path(name, None)
        followers[path] = follower(pool.profile, pool.hardware, count - len(pool.overrides))
        for node, profile in pool.overrides.items():
            followers[follower_path(name, node)] = follower(profile, pool.hardware, count)
    return Profiles(rules, frozenset(followed), followers)


def profile_changes(before: Profiles, after: Profiles) -> tuple[SettingChange, ...]:
    """Return what becomes of profiles that no pool follows; a new name alone is no change."""
    changes: list[SettingChange] = []
    for name in sorted({*before.rules, *after.rules} - before.followed - after.followed):
        path = f"profiles.{name}"
        older, newer = before.rules.get(name), after.rules.get(name)
        if older is not None and newer is not None:
            found = _rule_changes(Follower(older, ()), Follower(newer, ()), shown=False)
            changes += _below(path, found)
        elif older is not None and older not in after.rules.values():
            changes.append(SettingChange(path, "in the stack file", ""))
        elif newer is not None and newer not in before.rules.values():
            changes.append(SettingChange(path, "", "in the stack file"))
    return tuple(changes)


def follower_changes(
    before: Mapping[str, Follower], after: Mapping[str, Follower], shown: frozenset[str]
) -> tuple[SettingChange, ...]:
    """Return what the followers' rules change beyond the prediction.

    ``shown`` are the paths of those whose change the prediction shows.
    """
    changes: list[SettingChange] = []
    # Many nodes follow one profile, and change alike.
    known: dict[tuple[int, int, bool], tuple[SettingChange, ...]] = {}
    for path in sorted({*before, *after}):
        older, newer = before.get(path), after.get(path)
        if older is not None and newer is not None:
            key = (id(older), id(newer), path in shown)
            if key not in known:
                known[key] = tuple(_rule_changes(older, newer, shown=path in shown))
            changes += _below(path, known[key])
        elif older is not None:
            changes += [SettingChange(one, text, "") for one, text in _alone(path, older)]
        elif newer is not None:
            changes += [SettingChange(one, "", text) for one, text in _alone(path, newer)]
    return tuple(changes)


def _predicted(rules: tuple[Rule, ...], hardware: Hardware) -> tuple[Rule, ...]:
    model = hardware_model(hardware)
    names = (model.product, model.name)
    return tuple(
        next(rule for rule in rules if rule.devices.takes(index, "", names))
        for index in range(hardware.gpus)
    )


def _alone(path: str, follower: Follower) -> Iterator[tuple[str, str]]:
    """Yield the rules of a follower that the other side lacks, but for what is predicted."""
    for rule in follower.rules:
        if follower.predicted and (rule in follower.predicted or rule == Rule()):
            continue
        yield f"{path}[{_name(rule.devices)}]", _text(rule)


def _below(path: str, changes: Iterable[SettingChange]) -> Iterator[SettingChange]:
    for one in changes:
        yield SettingChange(path + one.path, one.before, one.after)


def _rule_changes(before: Follower, after: Follower, *, shown: bool) -> Iterator[SettingChange]:
    """Yield what becomes of each selector's GPUs, then of those that two selectors share."""
    if before.rules == after.rules:
        return
    steps = tuple(zip(before.predicted, after.predicted, strict=False)) if shown else ()
    older = {rule.devices: rule for rule in before.rules}
    newer = {rule.devices: rule for rule in after.rules}
    for selector in sorted({*older, *newer}, key=rank):
        sides = _made(before.rules, selector), _made(after.rules, selector)
        taken = (step for step in steps if selector in (step[0].devices, step[1].devices))
        seen = any(_is_step(sides, step) for step in taken) and not _both_by_claims(*sides)
        if sides[0] != sides[1] and not seen:
            yield from _content_changes(f"[{_name(selector)}]", *sides)
    same = [rule for rule in after.rules if older.get(rule.devices) == rule]
    place = {rule.devices: number for number, rule in enumerate(before.rules)}
    for now, then in combinations(same, 2):
        turned = place[then.devices] < place[now.devices]
        if turned and order_counts(then, now) and (then, now) not in steps:
            names = " and ".join(map(_name, sorted((then.devices, now.devices), key=rank)))
            yield SettingChange(f"[{names}]", _text(then), _text(now))


def _made(rules: tuple[Rule, ...], selector: DeviceSelector) -> Rule | None:
    """Return what a selector's own rule makes of its GPUs, else the others, None if several."""
    own = next((content(rule) for rule in rules if rule.devices == selector), None)
    return outcome(rules, selector) if own is None else own


def _both_by_claims(before: Rule | None, after: Rule | None) -> bool:
    """Return whether the prediction shows only how much of two rules can be claimed at most."""
    rules = (before, after)
    return all(rule is not None and rule.claims is not None for rule in rules)


def _is_step(sides: tuple[Rule | None, Rule | None], step: tuple[Rule, Rule]) -> bool:
    return all(
        side is None or side == content(rule) for side, rule in zip(sides, step, strict=True)
    )


def _content_changes(path: str, before: Rule | None, after: Rule | None) -> Iterator[SettingChange]:
    """Yield the values that differ where both are of one kind, else the two as a whole."""
    older, newer = _leaves(before), _leaves(after)
    if older.keys() == newer.keys() and older:
        for one in setting_changes(older, newer):
            yield SettingChange(f"{path}.{one.path}", one.before, one.after)
    else:
        yield SettingChange(path, _text(before), _text(after))


def _leaves(rule: Rule | None) -> dict[str, str]:
    if rule is None:
        return {}
    leaves = dict(flat((), rule.model_dump(mode="json", by_alias=True, exclude={"devices"})))
    return leaves if rule.claims is None else {**leaves, "by": "claims"}


def _text(rule: Rule | None) -> str:
    if rule is None:
        return _VARIOUS
    value = rule.model_dump(mode="json", by_alias=True, exclude={"devices"}, exclude_defaults=True)
    text = ", ".join(f"{path} {text}" for path, text in sorted(flat((), value)))
    return text or (_WHOLE if rule.claims is None else _WHOLE_BY_CLAIMS)


def _name(selector: DeviceSelector) -> str:
    if selector.everything:
        return "all"
    return selector.model or str((*selector.uuids, *selector.indices)[0])
