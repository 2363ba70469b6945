"""Why a pod waits, for the terminal."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.plan.why import Explanation


def why_text(explanation: Explanation) -> RenderableType:
    """Return what a pod asks for, whom it waits for, and every GPU with what is in the way."""
    parts: list[RenderableType] = []
    if not explanation.verdicts:
        parts.append(Text.assemble((explanation.pod, "bold"), ": waits for no GPU of Divvy's"))
    for verdict in explanation.verdicts:
        parts.append(
            Text.assemble((explanation.pod, "bold"), f": asks for {verdict.request.words}")
        )
        style = "green" if verdict.nodes else "yellow"
        parts.append(Padding(Text(verdict.conclusion, style=style), (0, 0, 0, 2)))
        parts += [Padding(Text(one.words), (0, 0, 0, 4)) for one in verdict.obstacles]
        if verdict.request.selectors:
            own = "; ".join(verdict.request.selectors)
            note = f"its claim has conditions that are not looked at here: {own}"
            parts.append(Padding(Text(note, style="dim"), (0, 0, 0, 2)))
        unread = (*verdict.request.unread, *verdict.request.narrowed)
        if unread:
            note = f"not looked at in its claim: {', '.join(unread)}"
            parts.append(Padding(Text(note, style="dim"), (0, 0, 0, 2)))
    parts += [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in explanation.notes]
    return Group(*parts)
