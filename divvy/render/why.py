"""Why a pod waits, for the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.plan.why import Explanation
from divvy.plan.why.explanation import Obstacle

_SHOWN = 3


def why_text(explanation: Explanation) -> RenderableType:
    """Return what a pod asks for, whom it waits for, and what is in the way on each GPU.

    Where a GPU is free, the pod waits for something else: what is known of that comes first.
    """
    notes = [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in explanation.notes]
    elsewhere = any(verdict.nodes for verdict in explanation.verdicts)
    parts: list[RenderableType] = [*notes] if elsewhere else []
    if not explanation.verdicts:
        parts.append(Text.assemble((explanation.pod, "bold"), ": waits for no GPU of Divvy's"))
    for verdict in explanation.verdicts:
        parts.append(
            Text.assemble((explanation.pod, "bold"), f": asks for {verdict.request.words}")
        )
        style = "green" if verdict.nodes else "yellow"
        parts.append(Padding(Text(verdict.conclusion, style=style), (0, 0, 0, 2)))
        parts += [Padding(Text(line), (0, 0, 0, 4)) for line in obstacle_lines(verdict.obstacles)]
        if verdict.request.selectors:
            own = "; ".join(verdict.request.selectors)
            note = f"its claim has conditions that are not looked at here: {own}"
            parts.append(Padding(Text(note, style="dim"), (0, 0, 0, 2)))
        unread = (*verdict.request.unread, *verdict.request.narrowed)
        if unread:
            note = f"not looked at in its claim: {', '.join(unread)}"
            parts.append(Padding(Text(note, style="dim"), (0, 0, 0, 2)))
    return Group(*parts, *([] if elsewhere else notes))


def obstacle_lines(obstacles: Sequence[Obstacle]) -> list[str]:
    """Return a line for each GPU with holders, and one for all GPUs with the same reason."""
    lines = [obstacle.words for obstacle in obstacles if obstacle.holders]
    gpus: dict[str, list[str]] = {}
    for obstacle in obstacles:
        if not obstacle.holders:
            gpus.setdefault(obstacle.reason, []).append(obstacle.gpu)
    for reason, names in gpus.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines.append(f"{', '.join(names[:_SHOWN])}{more}: {reason}")
    return lines
