"""`divvy why` in the terminal."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from divvy.plan.fit import PodsFit
from divvy.render.views.fit import pods_fit_lines


def why_text(pod: str, fit: PodsFit | None, notes: Sequence[str]) -> RenderableType:
    """Return what is in the way of a pod, and what is known beside; ``fit`` is None on a node.

    If the pod would fit it waits for something else: what is known of that comes first.
    """
    note_lines = [Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in notes]
    if fit is None:
        return Group(Text(pod, style="bold"), *note_lines)
    lines = pods_fit_lines(fit)
    return Group(*note_lines, *lines) if fit.fitting else Group(*lines, *note_lines)
