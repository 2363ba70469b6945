"""Edits of a stack file that leave every other character as it was, comments above all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from divvy.stack.errors import StackError
from divvy.stack.file import StackFile
from divvy.stack.keys import CLUSTER
from divvy.stack.yaml_flow import flow

_SECTION = ("config", CLUSTER)
_STEP = 2


def with_profile(file: StackFile, pool: str, profile: Any, name: str) -> tuple[StackFile, str]:
    """Give a pool a profile: one of the file that is the same, else a new one of this name.

    Returns the file and the profile's name; raises StackError where the text does not allow it.
    """
    cluster: Any = file.section(CLUSTER)
    profiles: Mapping[str, Any] = cluster["profiles"]
    same = next((known for known, value in profiles.items() if value == profile), None)
    chosen = same or _free(name, profiles)
    expected = _copy(cluster)
    expected["profiles"][chosen] = profile
    expected["pools"][pool]["profile"] = chosen
    edited = file
    try:
        edited = replace(
            file, text=_with_value(file, (*_SECTION, "pools", pool, "profile"), chosen)
        )
        if same is None:
            text = _with_entry(edited, (*_SECTION, "profiles"), chosen, profile)
            edited = replace(file, text=text)
        is_right = edited.section(CLUSTER) == expected
    except (StackError, KeyError):
        is_right = False  # anchors, tags, and whatever else YAML allows
    if not is_right:
        raise StackError(
            f"{file.source} cannot be edited as it is written; add below `profiles`: "
            f"{flow(chosen)}: {flow(profile)}, and give pool {pool} that profile"
        )
    return edited, chosen


def _free(name: str, names: Mapping[str, Any]) -> str:
    candidates = (name, *(f"{name}-{number}" for number in range(2, len(names) + 3)))
    return next(free for free in candidates if free not in names)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _with_value(file: StackFile, keys: tuple[str, ...], value: str) -> str:
    node = file.node(keys)
    # Behind an alias it would be somebody else's value, too: the text is compared afterwards.
    start, end = node.start_mark.index, node.end_mark.index
    return f"{file.text[:start]}{flow(value)}{file.text[end:]}"


def _with_entry(file: StackFile, keys: tuple[str, ...], name: str, value: Any) -> str:
    """Return the text with one more entry at the end of a mapping."""
    node = file.node(keys)
    assert isinstance(node, yaml.MappingNode)
    if node.flow_style:
        at = node.end_mark.index - 1
        comma = "" if not node.value or file.text[:at].rstrip().endswith(",") else ", "
        return f"{file.text[:at].rstrip()}{comma}{flow(name)}: {flow(value)}{file.text[at:]}"
    indent = node.value[0][0].start_mark.column
    lines = file.text.splitlines(keepends=True)
    end = _last_line(node.value[-1][1])
    while end < len(lines) and _is_comment(lines[end], deeper_than=indent):
        end += 1
    if not lines[end - 1].endswith("\n"):
        lines[end - 1] += "\n"
    entry = [f"{flow(name)}:", *(f"{' ' * _STEP}- {flow(rule)}" for rule in value)]
    if not isinstance(value, list):
        entry = [f"{flow(name)}: {flow(value)}"]
    lines[end:end] = [f"{' ' * indent}{line}\n" for line in entry]
    return "".join(lines)


def _last_line(node: yaml.Node) -> int:
    """Return the number of the line after a node; block style ends where the next key begins."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(node, yaml.MappingNode) else last
    return int(node.end_mark.line) + (1 if node.end_mark.column else 0)


def _is_comment(line: str, deeper_than: int) -> bool:
    text = line.lstrip()
    return text.startswith("#") and len(line) - len(text) > deeper_than
