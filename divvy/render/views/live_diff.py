"""The difference from the live nodes, for the terminal and as JSON."""

import json
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.live.live_diff import LiveDifference, NodeDifference
from divvy.live.node_moves import NodeMove
from divvy.model.api_names import State
from divvy.model.phrases import plural
from divvy.render.views.node_moves import node_move_lines, node_moves_json


def live_text(difference: LiveDifference, moves: Sequence[NodeMove] = ()) -> RenderableType:
    """Return what the nodes advertise where it is not what the stack file says.

    ``moves`` are the nodes that go to claims, or come from them.
    """
    heading = Text.assemble((difference.cluster, "bold"), " and its live nodes: ")
    if not difference:
        return heading.append(f"{plural(difference.compared, 'node')} as the stack file says")
    number = len(difference.nodes)
    words = f"{number} of {plural(difference.compared, 'node')} differ{'s' if number == 1 else ''}"
    if absent := len(difference.unknown_overrides):
        words += f", and {plural(absent, 'override')} name{'s' if absent == 1 else ''} no node"
    heading.append(words)
    parts: list[RenderableType] = [heading]
    for count in difference.counts:
        parts.append(
            Text(
                f"pool {count.pool}: {plural(count.actual, 'node')}, the file says {count.expected}"
            )
        )
    for node in (*difference.nodes, *difference.unknown_overrides):
        parts += ["", Text.assemble((f"node {node.node}", "bold"), f": {_title(node)}")]
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in _lines(node)]
    if moves:
        parts += ["", *(Text(line) for line in node_move_lines(moves))]
    return Group(*parts)


def live_json(difference: LiveDifference, moves: Sequence[NodeMove] = ()) -> str:
    """Return the same as JSON text."""
    document = {
        "cluster": difference.cluster,
        "compared": difference.compared,
        "pools": [
            {"pool": count.pool, "found": count.actual, "expected": count.expected}
            for count in difference.counts
        ],
        "nodes": [
            {
                "node": node.node,
                "pool": node.pool,
                "profile": node.profile,
                "bypass": node.bypass,
                "problem": node.problem,
                "state": node.state,
                "reason": node.reason,
                "unavailable": node.unavailable,
                "resources": {
                    row.resource: {"live": row.before, "file": row.after} for row in node.resources
                },
            }
            for node in (*difference.nodes, *difference.unknown_overrides)
        ],
        "moves": node_moves_json(moves),
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _title(node: NodeDifference) -> str:
    pool = f"pool {node.pool}" if node.pool else "in no pool"
    return f"{pool}, profile {node.profile}" if node.profile else pool


def _lines(node: NodeDifference) -> Iterable[str]:
    if node.unavailable:
        follows = node.pool or node.problem
        yield node.unavailable + ("; the values below are from before that" if follows else "")
    if node.bypass:
        yield f"bypasses the file: label {node.bypass}"
    if node.problem:
        yield node.problem
    if node.state not in (None, State.READY):
        yield f"its agent says {node.state}: {node.reason}" if node.reason else f"{node.state}"
    width = max((len(row.resource) for row in node.resources), default=0)
    for row in node.resources:
        yield f"{row.resource:<{width}}  advertises {row.before:,}, the file says {row.after:,}"
