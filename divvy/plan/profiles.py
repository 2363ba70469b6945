"""What profiles say beyond the prediction: to GPUs and nodes that are not there by now."""

from collections.abc import Mapping
from dataclasses import dataclass

from divvy.model import Cluster, Hardware, Profile, Rule, gpu_model, rule_for
from divvy.plan.settings import SettingChange, flat, setting_changes

_WHOLE = "whole GPUs"


@dataclass(frozen=True)
class Follower:
    """The profile of a pool, or of one node of it, as text by the path below it.

    ``predicted``: the prediction shows nodes that follow it, and so all of ``rules`` but
    ``beyond``: what the rules say to GPUs that the pool's hardware does not name; ``further`` is
    what one more GPU of its model would be.
    """

    predicted: bool
    rules: Mapping[str, str]
    beyond: Mapping[str, str]
    further: str


@dataclass(frozen=True)
class Profiles:
    """Every profile as text by its path below it; ``followed`` are the names that pools name.

    ``followers`` are by their paths: ``pools.<pool>.profile``, ``pools.<pool>.overrides.<node>``.
    """

    rules: Mapping[str, Mapping[str, str]]
    followed: frozenset[str]
    followers: Mapping[str, Follower]


def follower_path(pool: str, node: str | None) -> str:
    """Return the path of a pool's profile, or of that of one node of it."""
    return f"pools.{pool}.profile" if node is None else f"pools.{pool}.overrides.{node}"


def profiles_of(cluster: Cluster) -> Profiles:
    """Return the profiles; a label on a node may choose those, too, that no pool names."""
    pools = cluster.pools.values()
    followed = {name for pool in pools for name in (pool.profile, *pool.overrides.values())}
    texts = {name: _rules(profile.rules) for name, profile in cluster.profiles.items()}
    known: dict[tuple[str, str, int], Follower] = {}

    def follower(name: str, hardware: Hardware | None, nodes: int) -> Follower:
        if hardware is None or nodes <= 0:
            return Follower(False, texts[name], {}, "")
        key = (name, hardware.model, hardware.gpus)
        if key not in known:
            known[key] = _predicted(cluster.profiles[name], hardware, texts[name])
        return known[key]

    followers: dict[str, Follower] = {}
    for name, pool in cluster.pools.items():
        count = 0 if pool.hardware is None else pool.hardware.count
        path = follower_path(name, None)
        followers[path] = follower(pool.profile, pool.hardware, count - len(pool.overrides))
        for node, profile in pool.overrides.items():
            followers[follower_path(name, node)] = follower(profile, pool.hardware, count)
    return Profiles(
        {name: {f"rules{path}": one for path, one in text.items()} for name, text in texts.items()},
        frozenset(followed),
        followers,
    )


def profile_changes(before: Profiles, after: Profiles) -> tuple[SettingChange, ...]:
    """Return what becomes of profiles that no pool follows; a new name alone is no change."""
    changes: list[SettingChange] = []
    for name in sorted({*before.rules, *after.rules} - before.followed - after.followed):
        older, newer = before.rules.get(name), after.rules.get(name)
        if older is None or newer is None:
            there, elsewhere = (before, after) if newer is None else (after, before)
            if there.rules[name] not in elsewhere.rules.values():
                words = "in the stack file"
                sides = (words, "") if newer is None else ("", words)
                changes.append(SettingChange(f"profiles.{name}", *sides))
            continue
        changes += [
            SettingChange(f"profiles.{name}.{one.path}", one.before, one.after)
            for one in setting_changes(older, newer)
        ]
    return tuple(changes)


def follower_changes(
    before: Mapping[str, Follower], after: Mapping[str, Follower], shown: frozenset[str]
) -> tuple[SettingChange, ...]:
    """Return what the followers' rules change beyond the prediction.

    ``shown`` are the paths of those whose change the prediction shows.
    """
    changes: list[SettingChange] = []
    for path in sorted({*before, *after}):
        older, newer = before.get(path), after.get(path)
        there = [one for one in (older, newer) if one is not None]
        predicted = all(one.predicted for one in there)
        sides = [
            {} if one is None else one.beyond if predicted else one.rules for one in (older, newer)
        ]
        changes += [
            SettingChange(path + one.path, one.before, one.after) for one in setting_changes(*sides)
        ]
        further = [one.further for one in there if predicted]
        # Where the others change it follows them, and that is shown.
        if path not in shown and len(set(further)) > 1:
            changes.append(SettingChange(f"{path} of further GPUs", *further))
    return tuple(changes)


def _predicted(profile: Profile, hardware: Hardware, rules: Mapping[str, str]) -> Follower:
    model = gpu_model(hardware.model)
    names = (model.product, model.name)
    taken = {rule_for(profile, gpu, "", names) for gpu in range(hardware.gpus)}
    beyond: dict[str, str] = {}
    for number, rule in enumerate(profile.rules):
        if number not in taken:
            beyond |= _rule(number, rule)
            continue
        selector = {"uuids": sorted(rule.devices.uuids), "model": rule.devices.model}
        beyond |= dict(flat((f"[{number}]", "devices"), selector))
    further = rule_for(profile, None, "", names)
    text = _WHOLE if further < 0 else _content(profile.rules[further])
    return Follower(True, rules, beyond, text)


def _rules(rules: tuple[Rule, ...]) -> dict[str, str]:
    leaves: dict[str, str] = {}
    for number, rule in enumerate(rules):
        leaves |= _rule(number, rule)
    return leaves


def _rule(number: int, rule: Rule) -> dict[str, str]:
    """Return a rule as text; one that changes nothing about its GPUs says so."""
    value = rule.model_dump(mode="json", by_alias=True)
    value["devices"] |= {name: sorted(value["devices"][name]) for name in ("indices", "uuids")}
    leaves = dict(flat((f"[{number}]",), value))
    if rule.claims is not None:
        leaves[f"[{number}].claims"] = "by claims"
    return leaves or {f"[{number}]": _WHOLE}


def _content(rule: Rule) -> str:
    value = rule.model_dump(mode="json", by_alias=True, exclude={"devices"}, exclude_defaults=True)
    return ", ".join(f"{path} {text}" for path, text in sorted(flat((), value))) or _WHOLE
