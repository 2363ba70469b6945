"""Read a cluster value: structure first, then meaning, all errors at once."""

import copy
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from divvy.model.checks import check_cluster
from divvy.model.field_docs import field_doc
from divvy.model.problems import InvalidCluster, Problem, path_of
from divvy.model.stack import Cluster

Keys = tuple[str | int, ...]

_KIND = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
}
_PATTERN = {
    r"^/dev/": "a path below /dev is expected",
    r"^/": "an absolute path is expected",
    r"^\d+(\.\d+)*$": "a version such as 550.163.01 is expected",
    r"^\S+@sha256:[0-9a-f]{64}$": "an image with its digest is expected: …@sha256:<64 hex digits>",
}


def parse_cluster(value: object) -> Cluster:
    """Read the ``divvy:cluster`` value; raise InvalidCluster with every problem at once."""
    if isinstance(value, Cluster):
        return value
    if not isinstance(value, dict):
        expected = "a mapping with at least `profiles` and `pools` is expected"
        raise InvalidCluster([Problem("divvy:cluster", f"is {_said(value)}", expected)])
    problems: list[Problem] = []
    try:
        cluster = Cluster.model_validate(value)
    except ValidationError as invalid:
        keys = [_keys(error["loc"], value) for error in invalid.errors()]
        problems += [
            _problem(error, where) for error, where in zip(invalid.errors(), keys, strict=True)
        ]
        sound = _sound_part(value, keys)
        if sound is not None:
            problems += check_cluster(sound, broken=_broken(keys))
        raise InvalidCluster(problems) from None
    problems += check_cluster(cluster)
    if problems:
        raise InvalidCluster(problems)
    return cluster


def _problem(error: ErrorDetails, keys: Keys) -> Problem:
    """Say a structural error in plain words."""
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    reason, remedy = f"is {_said(given)}", ""
    if kind == "extra_forbidden":
        known = _known_keys(error["loc"][:-1])
        nearest = get_close_matches(str(keys[-1]), known, n=1)
        reason = "unknown key"
        remedy = f"did you mean {nearest[0]}?" if nearest else f"known here: {', '.join(known)}"
    elif kind == "missing":
        reason, remedy = "is missing", _purpose(error["loc"])
    elif kind in _KIND:
        remedy = f"{_KIND[kind]} is expected"
        if given is None and _KIND[kind] == "a mapping":
            remedy += "; write {} if there is nothing to say"
        if kind == "string_type" and not isinstance(given, dict | list):
            remedy += "; put it in quotes"
    elif kind == "greater_than_equal":
        remedy = f"{context['ge']} or more is expected"
    elif kind == "less_than_equal":
        remedy = f"{context['le']} or less is expected"
    elif kind == "literal_error":
        remedy = f"{str(context['expected']).replace(chr(39), '')} is expected"
    elif kind in ("too_short", "string_too_short"):
        reason, remedy = "is empty", "at least one entry is expected"
        if kind == "string_too_short":
            remedy = "text is expected"
    elif kind == "string_pattern_mismatch":
        remedy = _PATTERN[str(context["pattern"])]
    elif kind in ("value_error", "assertion_error"):
        reason, _, remedy = str(context["error"]).partition("; ")
    else:
        remedy = error["msg"][0].lower() + error["msg"][1:]
    return Problem(path_of(keys), reason, remedy, keys)


def _keys(location: tuple[str | int, ...], value: object) -> Keys:
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


def _model_at(location: tuple[str | int, ...]) -> type[BaseModel]:
    """Return the part of the schema that a location of pydantic's lies in."""
    here: type[BaseModel] = Cluster
    for key in location:
        found = _part(here, key)
        if found is not None:
            here = found
    return here


def _part(model: type[BaseModel], key: str | int) -> type[BaseModel] | None:
    for name, field in model.model_fields.items():
        if key in (name, field.alias):
            return _models_in(field.annotation)
    return None


def _models_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _models_in(argument)
        if found is not None:
            return found
    return None


def _known_keys(location: tuple[str | int, ...]) -> list[str]:
    return [field.alias or name for name, field in _model_at(location).model_fields.items()]


def _purpose(location: tuple[str | int, ...]) -> str:
    part = _model_at(location[:-1])
    for name, field in part.model_fields.items():
        doc = field_doc(part, name)
        if field.alias == location[-1] and doc:
            return f"what it says: {doc.rstrip('.')}"
    return ""


def _said(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    return repr(value) if not isinstance(value, bool) else str(value).lower()
