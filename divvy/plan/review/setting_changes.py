"""The settings of a stack file beside its topology and its profiles, and which of them differ."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster

# What the prediction does not show of a pool's hardware: with nodes, and without any.
_HARDWARE = {True: ("memory", "os"), False: ("memory", "os", "model", "gpus")}
# Where the cluster is reached from a machine: it changes nothing on a node.
_NOT_OF_NODES = frozenset({"kubeconfig", "context"})


@dataclass(frozen=True)
class SettingChange:
    """One value of the stack file that differs; "" on the side that lacks it."""

    path: str
    before: str
    after: str


def settings_of(cluster: Cluster) -> Mapping[str, str]:
    """Return every setting but the profiles as text, by its path."""
    value = _unordered(cluster.model_dump(mode="json", by_alias=True))
    value.pop("profiles")
    pools = value.pop("pools")
    value["devices"] = {entry["resource"]: entry for entry in value["devices"]}
    for name in _NOT_OF_NODES:
        value.pop(name)
    for pool in pools.values():
        hardware = pool.pop("hardware")
        predicted = hardware is not None and hardware["count"] > 0
        # Of a pool that has no nodes now the prediction shows nothing.
        settings = {key: hardware[key] for key in _HARDWARE[predicted]} if hardware else None
        pool["hardware"] = settings or "not in the stack file"
        # By value, not by name: see ``profile_changes``.
        del pool["profile"], pool["overrides"]
    return dict(flat(("pools",), pools)) | dict(flat((), value))


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
    return tuple(change for change in changes if not _is_predicted(change))


def _is_predicted(change: SettingChange) -> bool:
    """Return whether a pool has nodes on one side, so that the prediction shows its hardware."""
    one_sided = not change.before or not change.after
    return one_sided and change.path.endswith((".hardware.model", ".hardware.gpus"))


def flat(keys: tuple[str, ...], value: object) -> Iterator[tuple[str, str]]:
    """Yield every leaf with its path; an empty mapping is a leaf of no text."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from flat((*keys, str(key)), item)
    elif isinstance(value, list):
        yield from _flat_list(keys, value)
    elif value is not None:
        text = "" if isinstance(value, Mapping) else str(value)
        yield ".".join(keys), text.lower() if isinstance(value, bool) else text


def _flat_list(keys: tuple[str, ...], items: Iterable[object]) -> Iterator[tuple[str, str]]:
    for number, item in enumerate(items):
        yield from flat((*keys[:-1], f"{keys[-1]}[{number}]"), item)
