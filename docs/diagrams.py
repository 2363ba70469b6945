"""The diagrams of the pages, as SVG: boxes on a grid, and arrows between them.

The texts are here; the same texts give the same bytes, and nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

_WIDTH, _LINE, _MARGIN = 230, 19, 20
_GAP_X, _GAP_Y = 90, 50
_FILLS = {"file": "#fff7e0", "own": "#e8f1fb", "other": "#eef0f2", "state": "#e7f4ea"}
_STYLE = (
    'text{font-family:system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;fill:#1a1d21}'
    ".t{font-size:15px;font-weight:600}.l{font-size:12.5px;fill:#434b54}"
    ".a{font-size:12px;fill:#0b5cad;font-weight:600;text-anchor:middle}"
    "path.w{fill:none;stroke:#0b5cad;stroke-width:1.8}"
)
_MARKER = (
    '<defs><marker id="m" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#0b5cad"/></marker></defs>'
)


@dataclass(frozen=True)
class Box:
    """A box in a column and a row of the grid: a title, and what it does."""

    column: int
    row: int
    title: str
    lines: tuple[str, ...]
    kind: str = "own"

    @property
    def height(self) -> int:
        """Return its height."""
        return 34 + _LINE * len(self.lines)


@dataclass(frozen=True)
class Arrow:
    """An arrow between neighbours of the grid, by their titles."""

    start: str
    end: str
    words: str = ""


@dataclass(frozen=True)
class Diagram:
    """A picture; ``label`` says what it shows to those who do not see it."""

    label: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def svg(self) -> str:
        """Return the picture."""
        rows = max(box.row for box in self.boxes) + 1
        heights = [max(b.height for b in self.boxes if b.row == row) for row in range(rows)]
        tops = [_MARGIN + sum(heights[:row]) + _GAP_Y * row for row in range(rows)]
        columns = max(box.column for box in self.boxes) + 1
        width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP_X
        height = tops[-1] + heights[-1] + _MARGIN
        places = {
            box.title: (_MARGIN + box.column * (_WIDTH + _GAP_X), tops[box.row], box.height)
            for box in self.boxes
        }
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" role="img" aria-label="{escape(self.label)}">',
                f"<style>{_STYLE}</style>",
                _MARKER,
                f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
                *(line for box in self.boxes for line in _box(box, *places[box.title][:2])),
                *(line for arrow in self.arrows for line in _arrow(arrow, places)),
                "</svg>\n",
            ]
        )


def _box(box: Box, x: int, y: int) -> Iterator[str]:
    fill = _FILLS[box.kind]
    yield (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{box.height}" rx="8" fill="{fill}" '
        'stroke="#5b6570"/>'
    )
    yield f'<text x="{x + 14}" y="{y + 24}" class="t">{escape(box.title)}</text>'
    for number, line in enumerate(box.lines, 1):
        yield f'<text x="{x + 14}" y="{y + 25 + _LINE * number}" class="l">{escape(line)}</text>'


def _arrow(arrow: Arrow, places: dict[str, tuple[int, int, int]]) -> Iterator[str]:
    (x1, y1, h1), (x2, y2, h2) = places[arrow.start], places[arrow.end]
    if x1 == x2:  # below each other, or above; the way back is beside the way there
        middle = x1 + _WIDTH // 2 + (55 if y2 < y1 else -55)
        begin, end = (y1 + h1, y2) if y2 > y1 else (y1, y2 + h2)
        yield f'<path class="w" d="M{middle},{begin} L{middle},{end}" marker-end="url(#m)"/>'
        yield from _words(arrow.words, middle, (begin + end) // 2 + 4, 7 * len(arrow.words))
        return
    begin, end = (x1 + _WIDTH, x2) if x2 > x1 else (x1, x2 + _WIDTH)
    # What goes back is drawn lower than what goes there.
    y = max(y1, y2) + (24 if x2 > x1 else 48)
    yield f'<path class="w" d="M{begin},{y} L{end},{y}" marker-end="url(#m)"/>'
    yield from _words(arrow.words, (begin + end) // 2, y - 6, 0)


def _words(words: str, x: int, y: int, backdrop: int) -> Iterator[str]:
    if backdrop:
        yield (
            f'<rect x="{x - backdrop // 2 - 4}" y="{y - 13}" width="{backdrop + 8}" height="18" '
            'fill="#ffffff"/>'
        )
    if words:
        yield f'<text x="{x}" y="{y}" class="a">{escape(words)}</text>'


NODE = Diagram(
    "On a node: the agent reads the stack file from a ConfigMap, configures the GPUs through the "
    "driver, and advertises devices to the kubelet, which asks it for those of each container",
    (
        Box(
            0,
            0,
            "ConfigMap divvy",
            ("the stack file's content;", "a change arrives as an event"),
            "file",
        ),
        Box(
            1,
            0,
            "Divvy's agent",
            ("desired state of each GPU,", "state on the disk, status", "in the node's annotation"),
        ),
        Box(
            2,
            0,
            "Kubelet",
            ("counts devices, chooses", "one for each container,", "remembers who holds it"),
            "other",
        ),
        Box(1, 1, "Driver (NVML)", ("the GPUs, their MIG", "instances, their health"), "other"),
        Box(
            2,
            1,
            "A pod's container",
            (
                "sees its own device; hook and",
                "limiter give it the libraries",
                "and keep it within limits",
            ),
            "state",
        ),
    ),
    (
        Arrow("ConfigMap divvy", "Divvy's agent", "watch"),
        Arrow("Divvy's agent", "Kubelet", "devices"),
        Arrow("Kubelet", "Divvy's agent", "Allocate"),
        Arrow("Divvy's agent", "Driver (NVML)", "configures"),
        Arrow("Driver (NVML)", "A pod's container", "device"),
        Arrow("Kubelet", "A pod's container", "starts"),
    ),
)
CHANGE = Diagram(
    "A change's life: a GPU waits while a pod holds a device that has to go, changes once it is "
    "free, and is ready again; Blocked after the deadline, Failed if the driver refuses",
    (
        Box(0, 0, "Ready", ("the old layout;", "the file changes"), "state"),
        Box(
            1,
            0,
            "Waiting",
            ("a pod holds a device that", "has to go; free ones are", "no longer given out"),
        ),
        Box(2, 0, "Changing", ("MIG instances are", "removed and created")),
        Box(3, 0, "Ready again", ("advertises what the", "profile says"), "state"),
        Box(1, 1, "Blocked", ("the old layout is", "advertised again"), "file"),
        Box(2, 1, "Failed", ("the reason is the driver's", "or the planner's"), "file"),
    ),
    (
        Arrow("Ready", "Waiting", "held"),
        Arrow("Waiting", "Changing", "free"),
        Arrow("Changing", "Ready again", "done"),
        Arrow("Waiting", "Blocked", "deadline"),
        Arrow("Blocked", "Waiting", "pod ends"),
        Arrow("Changing", "Failed", "refused"),
        Arrow("Failed", "Changing", "again"),
    ),
)
CLAIM = Diagram(
    "The way of a claim: a pod's limits become a ResourceClaim, the scheduler allocates a part of "
    "a GPU that the agent has published, the kubelet asks the agent to prepare it",
    (
        Box(0, 0, "A pod", ("limits: gpumem 3000", "or its own ResourceClaim"), "state"),
        Box(1, 0, "Admission policy", ("turns the limits into", "a claim, or refuses them")),
        Box(2, 0, "ResourceClaim", ("what the pod needs,", "then which GPU it has"), "file"),
        Box(0, 1, "Kubelet", ("asks for the claim before", "the container starts"), "other"),
        Box(
            1,
            1,
            "Divvy's agent",
            ("publishes what a GPU can", "be; makes the device, its", "limits and its CDI file"),
        ),
        Box(2, 1, "Scheduler", ("chooses node, GPU and", "part of it"), "other"),
    ),
    (
        Arrow("A pod", "Admission policy", "create"),
        Arrow("Admission policy", "ResourceClaim", "template"),
        Arrow("Scheduler", "ResourceClaim", "allocates"),
        Arrow("Divvy's agent", "Scheduler", "slices"),
        Arrow("Kubelet", "Divvy's agent", "prepare"),
        Arrow("Divvy's agent", "Kubelet", "device"),
        Arrow("Kubelet", "A pod", "starts"),
    ),
)
