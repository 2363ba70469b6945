"""What a stack file says beside the topology: everything else that changes what a node does."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster

# What the prediction does not show of a pool's hardware: with nodes, and without any.
_HARDWARE = {True: ("os",), False: ("os", "model", "gpus")}
# Where the cluster is reached from a machine: it changes nothing on a node.
_NOT_OF_NODES = frozenset({"kubeconfig", "context"})


@dataclass(frozen=True)
class SettingChange:
    """One value of the stack file that differs; "" on the side where there is none."""

    path: str
    before: str
    after: str


def settings_of(cluster: Cluster) -> Mapping[str, str]:
    """Return every setting as text, by its path.

    A profile stands below the pools that follow it, by value: its name changes nothing. Below a
    pool whose devices are predicted it is left out, since the prediction shows its effect; a rule
    that selects GPUs by UUID cannot be predicted, and stays.
    """
    value = _unordered(cluster.model_dump(mode="json", by_alias=True))
    profiles = value.pop("profiles")
    pools = value.pop("pools")
    value["devices"] = {entry["resource"]: entry for entry in value["devices"]}
    for name in _NOT_OF_NODES:
        value.pop(name)
    for pool in pools.values():
        hardware = pool.pop("hardware")
        predicted = hardware is not None and hardware["count"] > 0
        # Of a pool that has no nodes now the prediction shows nothing.
        shown = {key: hardware[key] for key in _HARDWARE[predicted]} if hardware else None
        pool["hardware"] = shown or "not in the stack file"
        pool["profile"] = _rules(profiles[pool["profile"]], predicted)
        pool["overrides"] = {
            node: _rules(profiles[profile], predicted)
            for node, profile in pool["overrides"].items()
        }
    return dict(_flat(("pools",), pools)) | dict(_flat((), value))


@dataclass(frozen=True)
class Profiles:
    """Every profile as text by its path below it; ``followed`` are the names that pools name."""

    rules: Mapping[str, Mapping[str, str]]
    followed: frozenset[str]


def profiles_of(cluster: Cluster) -> Profiles:
    """Return the profiles; a label on a node may choose those, too, that no pool names."""
    value = cluster.model_dump(mode="json", by_alias=True)["profiles"]
    rules = {name: dict(_flat((), profile)) for name, profile in value.items()}
    pools = cluster.pools.values()
    followed = {name for pool in pools for name in (pool.profile, *pool.overrides.values())}
    return Profiles(rules, frozenset(followed))


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


def _unordered(value: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a stack file with what is a set, written as a list, in one order."""
    value["health"]["ignoreXids"] = sorted(set(value["health"]["ignoreXids"]))
    value["imagePullSecrets"] = sorted(set(value["imagePullSecrets"]))
    for entry in value["devices"]:
        entry["paths"] = sorted(set(entry["paths"]))
    for pool in value["pools"].values():
        pool["tolerations"] = sorted(pool["tolerations"], key=str)
    return value


def setting_changes(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[SettingChange, ...]:
    """Return the settings that differ, by path."""
    changes = (
        SettingChange(path, before.get(path, ""), after.get(path, ""))
        for path in sorted({*before, *after})
        if before.get(path, "") != after.get(path, "")
    )
    return tuple(one for one in changes if not _is_predicted(one))


def _is_predicted(change: SettingChange) -> bool:
    """Return whether a pool has nodes on one side, so that the prediction shows its hardware."""
    one_sided = not change.before or not change.after
    return one_sided and change.path.endswith((".hardware.model", ".hardware.gpus"))


def _rules(profile: Mapping[str, Any], predicted: bool) -> list[Any]:
    rules: list[Any] = profile["rules"]
    by_uuid = any(rule["devices"]["uuids"] for rule in rules)
    return rules if by_uuid or not predicted else []


def _flat(keys: tuple[str, ...], value: object) -> Iterator[tuple[str, str]]:
    """Yield every leaf with its path; an empty collection is a leaf of no text."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat((*keys, str(key)), item)
    elif isinstance(value, list):
        yield from _flat_list(keys, value)
    elif value is not None:
        yield ".".join(keys), str(value).lower() if isinstance(value, bool) else str(value)


def _flat_list(keys: tuple[str, ...], items: Iterable[object]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items):
        yield from _flat((*keys[:-1], f"{keys[-1]}[{number}]"), item)
