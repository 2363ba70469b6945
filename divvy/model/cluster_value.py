"""Read a cluster value: structure first, then meaning, all errors at once."""

import copy
from typing import Any

from pydantic import ValidationError

from divvy.model.checks import check_cluster
from divvy.model.plain_value import plain_problems
from divvy.model.problems import InvalidCluster, Keys, problem, value_text
from divvy.model.stack import Cluster
from divvy.model.validation import problems as problems_of


def parse_cluster(value: object) -> Cluster:
    """Read the ``divvy:cluster`` value; raise InvalidCluster with every problem at once."""
    if isinstance(value, Cluster):
        return value
    if not isinstance(value, dict):
        expected = "a mapping with at least `profiles` and `pools` is expected"
        raise InvalidCluster([problem((), f"is {value_text(value)}", expected)])
    problems = plain_problems(value)
    if problems:
        raise InvalidCluster(problems)
    try:
        cluster = Cluster.model_validate(value)
    except ValidationError as invalid:
        problems = problems_of(Cluster, invalid, value, "divvy:cluster", _keys)
        keys = [structural.keys for structural in problems]
        sound = _sound_part(value, keys)
        if sound is not None:
            problems += check_cluster(sound, broken=_broken(keys))
        raise InvalidCluster(problems) from None
    problems += check_cluster(cluster)
    if problems:
        raise InvalidCluster(problems)
    return cluster


def _keys(location: Keys, value: object) -> Keys:
    """Drop from pydantic's location what the file's short forms leave out."""
    keys: list[str | int] = []
    here: Any = value
    position = 0
    while position < len(location):
        key = location[position]
        position += 1
        if key == "[key]":
            continue
        if key == "rules" and len(keys) == 2 and keys[0] == "profiles":
            if isinstance(here, dict):
                position += 1
            continue
        if key == "layout" and isinstance(here, dict) and not {"layout", "strategy"} & here.keys():
            continue
        if key == "limit" and keys[-1:] == ["memoryLimit"] and not isinstance(here, dict):
            continue
        keys.append(key)
        if isinstance(here, dict):
            here = here.get(key)
        elif isinstance(here, list) and isinstance(key, int) and key < len(here):
            here = here[key]
        else:
            here = None
    return tuple(keys)


def _sound_part(value: dict[str, Any], keys: list[Keys]) -> Cluster | None:
    """Return the cluster without the profiles, pools and settings that are broken."""
    pruned = copy.deepcopy(value)
    for where in keys:
        if len(where) == 1 or where[0] not in ("profiles", "pools"):
            pruned.pop(str(where[0]) if where else "", None)
        elif isinstance(pruned.get(str(where[0])), dict):
            pruned[str(where[0])].pop(where[1], None)
    try:
        return Cluster.model_validate(pruned)
    except ValidationError:
        return None


def _broken(keys: list[Keys]) -> frozenset[str]:
    return frozenset(str(where[1]) for where in keys if len(where) > 1 and where[0] == "profiles")
