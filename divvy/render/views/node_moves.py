"""The way of nodes between the device plugin and claims, in lines of text."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from divvy.live.node_moves import NodeMove
from divvy.model.phrases import plural, some

_NODES = 20


def node_move_lines(moves: Sequence[NodeMove]) -> Iterator[str]:
    """Yield a heading for each direction, and a line for each node: ``a-2  when … has ended``."""
    for target, group in groupby(moves, key=lambda move: move.target):
        listed = list(group)
        width = max(len(move.node) for move in listed[:_NODES])
        yield f"{plural(len(listed), 'node')} to {target}, each once no pod holds its GPUs:"
        for move in listed[:_NODES]:
            yield f"  {move.node:<{width}}  {_when(move.pods)}"
        if len(listed) > _NODES:
            yield f"  and {plural(len(listed) - _NODES, 'more node')}"


def node_moves_json(moves: Iterable[NodeMove]) -> list[dict[str, object]]:
    """Return the same for JSON."""
    return [
        {"node": move.node, "target": str(move.target), "pods": list(move.pods)} for move in moves
    ]


def _when(pods: Sequence[str]) -> str:
    if not pods:
        return "at once"
    return f"when {some(pods)} {'has' if len(pods) == 1 else 'have'} ended"
