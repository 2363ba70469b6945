"""Profile changes that affect no GPU in the plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from divvy.model import Cluster, DeviceSelector, Hardware, Rule, hardware_model
from divvy.plan.review.level import LEVELS, Level
from divvy.plan.review.settings import SettingChange, flat, setting_changes

_WHOLE = "whole GPUs"
_WHOLE_BY_CLAIMS = "whole GPUs by claims"
_UUID = "GPU-"
_OTHERS = "as the other rules say"


@dataclass(frozen=True)
class Follower:
    """The rules of a pool's profile, or of one node's.

    ``predicted`` are the rules that take the GPUs which the prediction shows, by their indices; ()
    where it shows none. ``is_empty``: the stack file says that it has no nodes.
    """

    rules: tuple[Rule, ...]
    predicted: tuple[Rule, ...]
    is_empty: bool = False


@dataclass(frozen=True)
class Profiles:
    """The rules of every profile; ``followed`` are the names that pools name.

    ``followers`` are by their paths: ``pools.<pool>.profile``, ``pools.<pool>.overrides.<node>``.
    """

    rules: Mapping[str, tuple[Rule, ...]]
    followed: frozenset[str]
    followers: Mapping[str, Follower]

    @property
    def by_mps(self) -> bool:
        """Return whether one of them shares GPUs by MPS."""
        return any(rule.mps is not None for rules in self.rules.values() for rule in rules)


def follower_path(pool: str, node: str | None) -> str:
    """Return the path of a pool's profile, or of that of one node of it."""
    return f"pools.{pool}.profile" if node is None else f"pools.{pool}.overrides.{node}"


def profiles_of(cluster: Cluster) -> Profiles:
    """Return the profiles; a label on a node may choose those, too, that no pool names."""
    pools = cluster.pools.values()
    followed = {name for pool in pools for name in (pool.profile, *pool.overrides.values())}
    rules = {name: profile.rules for name, profile in cluster.profiles.items()}
    known: dict[tuple[str, str, int], Follower] = {}

    def follower(name: str, hardware: Hardware | None, nodes: int) -> Follower:
        if hardware is None or nodes <= 0:
            return Follower(rules[name], (), is_empty=hardware is not None)
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
    """Return what becomes of profiles that no pool follows, and of all names that come and go.

    A name is an interface: a node's label may choose it.
    """
    changes: list[SettingChange] = []
    followed = before.followed | after.followed
    for name in sorted({*before.rules, *after.rules}):
        path = f"profiles.{name}"
        older, newer = before.rules.get(name), after.rules.get(name)
        if older is None:
            changes.append(SettingChange(path, "", "in the stack file"))
        elif newer is None:
            changes.append(SettingChange(path, "in the stack file", ""))
        elif name not in followed:
            rule_changes = _rule_changes(
                Follower(older, ()), Follower(newer, ()), predicts_change=False
            )
            changes += _below(path, rule_changes, f"nodes whose label chooses profile {name}")
    return tuple(changes)


def follower_changes(
    before: Mapping[str, Follower],
    after: Mapping[str, Follower],
    predicted_paths: frozenset[str],
) -> tuple[SettingChange, ...]:
    """Return what the followers' rules change beyond the prediction.

    ``predicted_paths`` are the paths of those whose change the prediction shows.
    """
    changes: list[SettingChange] = []
    # Many nodes follow one profile, and change alike.
    known: dict[tuple[int, int, bool], tuple[SettingChange, ...]] = {}
    for path in sorted({*before, *after}):
        older, newer = before.get(path), after.get(path)
        if older is not None and newer is not None:
            key = (id(older), id(newer), path in predicted_paths)
            if key not in known:
                known[key] = tuple(
                    _rule_changes(older, newer, predicts_change=path in predicted_paths)
                )
            changes += _below(path, known[key], f"pool {path.split('.')[1]}")
        elif older is not None:
            changes += [SettingChange(rule, text, "") for rule, text in _alone(path, older)]
        elif newer is not None:
            changes += [SettingChange(rule, "", text) for rule, text in _alone(path, newer)]
    return tuple(changes)


def levels_of_moves(
    before: Mapping[str, Follower],
    after: Mapping[str, Follower],
    moves: Iterable[tuple[str, str]],
) -> dict[str, Level]:
    """Return by newer pool what its nodes go through that the prediction does not show.

    ``moves`` are the pools, before and after, that a node may be in.
    """
    overridden = _overridden(before), _overridden(after)
    levels: dict[str, Level] = {}
    # Many nodes follow one profile, and move alike.
    known: dict[tuple[int, int, bool], Level] = {}
    for older, newer in moves:
        nodes = overridden[0].get(older, set()) | overridden[1].get(newer, set())
        for node in (None, *nodes):
            was, becomes = (
                side.get(follower_path(pool, node), side[follower_path(pool, None)])
                for side, pool in ((before, older), (after, newer))
            )
            key = (id(was), id(becomes), older == newer)
            if key not in known:
                known[key] = _level_of_move(was, becomes, in_one_pool=older == newer)
            levels[newer] = max(levels.get(newer, "none"), known[key], key=LEVELS.index)
    return levels


def _overridden(followers: Iterable[str]) -> dict[str, set[str]]:
    """Return the nodes with overrides by pool."""
    nodes: dict[str, set[str]] = {}
    for path in followers:
        pool, _, node = path.removeprefix("pools.").partition(".overrides.")
        if node:
            nodes.setdefault(pool, set()).add(node)
    return nodes


def _level_of_move(was: Follower, becomes: Follower, *, in_one_pool: bool) -> Level:
    if was.rules == becomes.rules or was.is_empty or becomes.is_empty:
        return "none"
    is_shown = in_one_pool and bool(was.predicted and becomes.predicted)
    older, newer = _by_selector(was.rules), _by_selector(becomes.rules)
    levels = (
        _unpredicted_level(name, older, newer, has_prediction=is_shown)
        for name in {**older, **newer}
        if older.get(name) != newer.get(name)
    )
    return max(levels, key=LEVELS.index, default="none")


def _predicted(rules: tuple[Rule, ...], hardware: Hardware) -> tuple[Rule, ...]:
    model = hardware_model(hardware)
    names = (model.product, model.name)
    return tuple(
        next((rule for rule in rules if rule.devices.takes(index, "", names)), Rule())
        for index in range(hardware.gpus)
    )


def _alone(path: str, follower: Follower) -> Iterator[tuple[str, str]]:
    """Yield the rules of a follower that the other side lacks, but for what is predicted."""
    predicted = [_content(rule) for rule in follower.predicted]
    for name, rule in _by_selector(follower.rules).items():
        if predicted and (rule in predicted or rule == Rule()):
            continue
        yield f"{path}[{name}]", _text(rule)


def _below(path: str, changes: Iterable[SettingChange], nodes: str) -> Iterator[SettingChange]:
    for change in changes:
        yield replace(
            change, path=path + change.path, nodes=nodes if change.level != "none" else ""
        )


def _rule_changes(
    before: Follower, after: Follower, *, predicts_change: bool
) -> Iterator[SettingChange]:
    """Yield what becomes of each selector's rule, then another order of the same selectors."""
    if before.rules == after.rules:
        return
    contents = map(_content, before.predicted), map(_content, after.predicted)
    steps = list(zip(*contents, strict=False))
    older, newer = _by_selector(before.rules), _by_selector(after.rules)
    for name in {**older, **newer}:
        sides = older.get(name), newer.get(name)
        if sides[0] != sides[1] and not _is_predicted(
            name, sides, steps, predicts_change=predicts_change
        ):
            level = _unpredicted_level(name, older, newer, has_prediction=bool(steps))
            yield from _content_changes(f"[{name}]", *sides, level)
    orders = [name for name in older if name in newer], [name for name in newer if name in older]
    if orders[0] != orders[1]:
        by_uuid = any(name.startswith(_UUID) for name in orders[0])
        is_shown = bool(steps) and not by_uuid
        level = "none" if is_shown else _level(older.values(), newer.values())
        was, becomes = (f"rules in the order {', '.join(order)}" for order in orders)
        yield SettingChange("", was, becomes, level)


def _by_selector(rules: Iterable[Rule]) -> dict[str, Rule]:
    """Return what becomes of each index, UUID and glob: the first rule that names it decides.

    GPUs that no rule selects are whole.
    """
    contents: dict[str, Rule] = {}
    for rule in (*rules, Rule()):
        content = _content(rule)
        for name in _names(rule.devices):
            contents.setdefault(name, content)
        if rule.devices.everything:
            break
    return contents


def _content(rule: Rule) -> Rule:
    """Return what a rule makes of its GPUs: the rule for all of them."""
    return rule.model_copy(update={"devices": DeviceSelector()})


def _is_predicted(
    name: str,
    sides: tuple[Rule | None, Rule | None],
    steps: Sequence[tuple[Rule, Rule]],
    *,
    predicts_change: bool,
) -> bool:
    """Return whether the prediction says what becomes of a selector's GPUs.

    ``steps`` are the rules before and after of the GPUs that it knows, by index;
    ``predicts_change`` says that it shows a change. It knows no UUID, and of claims only how much
    there can be at most.
    """
    if all(side is not None and side.claims is not None for side in sides):
        return False
    if name.isdecimal() and int(name) < len(steps):
        before, after = steps[int(name)]
        return predicts_change or before == after
    if name.startswith(_UUID):
        return False
    return predicts_change and any(
        all(side is None or side == rule for side, rule in zip(sides, step, strict=True))
        for step in steps
    )


def _unpredicted_level(
    name: str, older: Mapping[str, Rule], newer: Mapping[str, Rule], *, has_prediction: bool
) -> Level:
    """Return what a selector's other content does to pods, beyond what the prediction shows."""
    # What a side does not select may follow any of its rules.
    before = [older[name]] if name in older else list(older.values())
    after = [newer[name]] if name in newer else list(newer.values())
    # The prediction shows what claims become, and an index or glob without a GPU in it has none.
    return _level(before, after) if name.startswith(_UUID) or not has_prediction else "none"


def _level(before: Iterable[Rule], after: Iterable[Rule]) -> Level:
    """Return what it does to pods that a GPU may follow any of these rules after any of those."""
    first, *others = (_held_as(rule) for rule in (*before, *after))
    return "new pods only" if all(other == first for other in others) else "GPUs must be idle"


def _held_as(rule: Rule) -> tuple[object, ...]:
    """Return as what a pod holds a GPU, as far as its rule tells: see ``Offer.held_as``."""
    sharing = rule.sharing
    names = None if sharing is None else (sharing.rename_by_default, sharing.resource_name)
    return rule.mig, rule.claims is None, rule.mps is None, names


def _content_changes(
    path: str, before: Rule | None, after: Rule | None, level: Level
) -> Iterator[SettingChange]:
    """Yield the values that differ where both are of one kind, else the two as a whole."""
    older, newer = _leaves(before), _leaves(after)
    if older.keys() == newer.keys() and older:
        for setting_change in setting_changes(older, newer):
            yield replace(setting_change, path=f"{path}.{setting_change.path}", level=level)
    else:
        yield SettingChange(path, _text(before), _text(after), level)


def _leaves(rule: Rule | None) -> dict[str, str]:
    if rule is None:
        return {}
    leaves = dict(flat((), rule.model_dump(mode="json", by_alias=True, exclude={"devices"})))
    return leaves if rule.claims is None else {**leaves, "by": "claims"}


def _text(rule: Rule | None) -> str:
    if rule is None:
        return _OTHERS
    value = rule.model_dump(mode="json", by_alias=True, exclude={"devices"}, exclude_defaults=True)
    text = ", ".join(f"{path} {text}" for path, text in sorted(flat((), value)))
    return text or (_WHOLE if rule.claims is None else _WHOLE_BY_CLAIMS)


def _names(selector: DeviceSelector) -> list[str]:
    if selector.everything:
        return ["all"]
    if selector.model is not None:
        return [selector.model]
    return [*selector.uuids, *map(str, selector.indices)]
