"""Finds the conditional parts of an object by comparing it with and without something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from divvy.render.chart.yaml_text import Conditional


class CannotTemplate(Exception):
    """An object depends on the stack file in a way that the chart does not know; a bug of ours."""


def conditional(full: Any, without: Any, opening: str) -> Any:
    """Return ``full`` with everything that ``without`` lacks below an action.

    What ``full`` already has below actions is compared as if it were there.
    """
    if isinstance(full, Conditional):
        return Conditional(full.opening, conditional(full.node, without, opening))
    if isinstance(full, Mapping) and isinstance(without, Mapping):
        if set(without) - set(full):
            raise CannotTemplate(f"{opening}: {sorted(set(without) - set(full))} appears without")
        return {
            key: conditional(value, without[key], opening)
            if key in without
            else _once(value, opening)
            for key, value in full.items()
        }
    if _is_list(full) and _is_list(without):
        return _conditional_list(full, without, opening)
    if plain(full) != without:
        raise CannotTemplate(f"{opening}: {plain(full)!r} becomes {without!r}")
    return full


def plain(node: Any) -> Any:
    """Return a node without the actions around its parts."""
    if isinstance(node, Conditional):
        return plain(node.node)
    if isinstance(node, Mapping):
        return {key: plain(value) for key, value in node.items()}
    return [plain(item) for item in node] if _is_list(node) else node


def _conditional_list(full: Sequence[Any], without: Sequence[Any], opening: str) -> list[Any]:
    left = list(without)
    items = []
    for item in full:
        partner = next((other for other in left if _name(other) == _name(plain(item))), None)
        if partner is None:
            items.append(_once(item, opening))
        else:
            left.remove(partner)
            items.append(conditional(item, partner, opening))
    if left:
        raise CannotTemplate(f"{opening}: {left} appears without")
    return items


def _once(node: Any, opening: str) -> Conditional:
    if isinstance(node, Conditional) and node.opening == opening:
        return node
    return Conditional(opening, node)


def _name(item: Any) -> Any:
    """Return what two items of a list have to have in common to be the same one."""
    return item["name"] if isinstance(item, Mapping) and "name" in item else item


def _is_list(node: Any) -> bool:
    return isinstance(node, Sequence) and not isinstance(node, str)
