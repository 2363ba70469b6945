"""A page of the docs as the pieces that a reader takes in one by one."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

_ITEM = re.compile(r"(\* |- |\d+\. |\|)")
_RULER = re.compile(r"[|\s:-]*")


@dataclass(frozen=True)
class Block:
    """A paragraph, an item of a list or a row of a table, on one line, below its title."""

    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Left out: the heads of tables, comments, and indented and fenced examples.
    """
    parts: list[Block] = []
    title = ""
    fenced = going_on = False
    lines = page.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        text = line.strip()
        if text.startswith("```"):
            fenced = not fenced
        elif not fenced and text.startswith("#"):
            title = text.lstrip("# ")
        head = text.startswith("|") and _RULER.fullmatch(following.strip() or "none")
        example = line.startswith("    ") and not going_on
        if (
            fenced
            or not text
            or text.startswith(("#", "```", "<!--"))
            or head
            or example
            or _RULER.fullmatch(text)
        ):
            going_on = False
        elif going_on and not _ITEM.match(text):
            parts[-1] = replace(parts[-1], text=f"{parts[-1].text} {text}")
        else:
            parts.append(Block(title, text))
            going_on = True
    return parts
