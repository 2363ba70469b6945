"""values.yaml: the stack file's values, every other knob beside them as a comment."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from divvy.render.chart.value_docs import ValueDoc, value_doc, walk
from divvy.render.chart.values_schema import CHART_VALUES, NOT_VALUES, stack_values
from divvy.render.chart.yaml_text import flow, scalar

_WIDTH = 96
_HEAD = """\
# yaml-language-server: $schema=values.schema.json
# Values of the Divvy chart, made from a stack file. They can be edited here, too: profiles say
# how the GPUs of a node are partitioned and shared, pools which nodes follow which profile.
# Values behind a # are the defaults. Maps of a second values file are merged with these: to
# take a profile or a layout away, set its key to null there.
"""


def chart_values(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a stack file's value a chart has as values."""
    plain: dict[str, Any] = _without_nulls(value)
    return {key: item for key, item in plain.items() if key not in NOT_VALUES}


def values_text(value: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Return values.yaml; ``own`` are the values that only a chart has."""
    stack, parts = stack_values()
    given = chart_values(value)
    lines = [_HEAD]
    for key, schema in stack.items():
        lines += [*_section(value_doc(key, schema, parts), given), ""]
    for key, schema in CHART_VALUES.items():
        lines += [*_section(value_doc(key, schema, {}), own), ""]
    return "\n".join(lines[:-1]) + "\n"


def block(key: str, value: Any, depth: int) -> Iterator[str]:
    """Yield an entry, on one line where it fits."""
    space = " " * depth
    text = f"{space}{scalar(key)}: {flow(value)}"
    if not isinstance(value, Mapping | list) or not value or len(text) <= _WIDTH:
        yield text
        return
    yield f"{space}{scalar(key)}:"
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from block(str(name), item, depth + 2)
        return
    for item in value:
        yield f"{space}  - {flow(item)}"


def _section(doc: ValueDoc, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield one top-level value under its description."""
    yield from _comment(doc.description)
    if doc.entry:
        yield from _reference(doc)
    if doc.key not in given:
        if not doc.below or doc.entry:
            yield f"# {scalar(doc.key)}: {flow(doc.default)}"
            return
        yield f"# {scalar(doc.key)}:"
        for below in doc.below:
            yield "# " + _absent(below)
        return
    value = given[doc.key]
    if doc.entry and isinstance(value, Mapping):
        yield f"{doc.key}:"
        for name, item in value.items():
            yield from block(str(name), item, 2)
    elif not doc.below or not isinstance(value, Mapping) or not value:
        yield from block(doc.key, value, 0)
    else:
        yield f"{doc.key}:"
        for below in doc.below:
            if below.key in value:
                yield from _comment(below.description, 2)
                yield from block(below.key, value[below.key], 2)
            else:
                yield "  # " + _absent(below).strip()


def _absent(doc: ValueDoc) -> str:
    value = f" {flow(doc.default)}" if doc.has_default else ""
    return f"  {doc.key}:{value}  # {doc.description}"


def _reference(doc: ValueDoc) -> Iterator[str]:
    """Yield the keys of each entry, for who wants to write one."""
    yield "# Each may have:"
    for path, below in list(walk(doc))[1:]:
        depth = path.count(".") - path.count(".<name>")
        value = f" ({flow(below.default)})" if below.has_default and below.default != [] else ""
        text = f"{below.key}: {below.description}{value}"
        yield from _comment(text, 0, " " * (2 * depth))


def _comment(text: str, depth: int = 0, inner: str = "") -> Iterator[str]:
    start = f"{' ' * depth}# {inner}"
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=start, subsequent_indent=f"{start}  " if inner else start
    )


def _without_nulls(node: Any) -> Any:
    if isinstance(node, Mapping):
        return {str(key): _without_nulls(value) for key, value in node.items() if value is not None}
    return [_without_nulls(item) for item in node] if isinstance(node, list | tuple) else node
