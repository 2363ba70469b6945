"""The keys of `divvy top` in a terminal: what they change in the view, and reading them."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import get_args

from divvy.live.usage import Order

_ORDERS: tuple[Order, ...] = get_args(Order)
_ENTER, _ESCAPE, _ERASE = "\r\n", "\x1b", "\x7f\b"


@dataclass(frozen=True)
class Chosen:
    """What a user has chosen to see: the order, and a text that nodes or pods have in their name.

    ``typing`` while that text is being typed; ``done`` once the user wants to leave.
    """

    order: Order = "node"
    text: str = ""
    typing: bool = False
    done: bool = False

    def pressed(self, key: str) -> Chosen:
        """Return what is chosen after a key."""
        if key == _ESCAPE:
            return replace(self, text="", typing=False)
        if self.typing:
            if key in _ENTER:
                return replace(self, typing=False)
            if key in _ERASE:
                return replace(self, text=self.text[:-1])
            return replace(self, text=self.text + key) if key.isprintable() else self
        match key:
            case "q":
                return replace(self, done=True)
            case "s":
                following = _ORDERS[(_ORDERS.index(self.order) + 1) % len(_ORDERS)]
                return replace(self, order=following)
            case "/":
                return replace(self, typing=True, text="")
        return self

    def words(self) -> str:
        """Return the line that names the keys and what is chosen."""
        if self.typing:
            return f"filter: {self.text}_  (Enter: keep, Esc: all)"
        filter_text = f" {self.text} (Esc: all)" if self.text else ""
        return f"q: quit   s: sort by {self.order}   /: filter{filter_text}"


class Keys:
    """Keys pressed in this process's terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def within(self, seconds: float) -> str:
        """Return the keys that are pressed, as soon as there are any; "" after some seconds."""
        ready, _, _ = select.select([self._terminal], [], [], seconds)
        if not ready:
            return ""
        pressed = os.read(self._terminal, 256).decode(errors="ignore")
        # An arrow, and whatever else begins with Escape, is none of these keys.
        return "" if len(pressed) > 1 and pressed.startswith(_ESCAPE) else pressed


@contextmanager
def reading_keys() -> Iterator[Keys | None]:
    """Read keys one by one, unseen; None if the input is no terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)  # Ctrl-C still interrupts
    try:
        yield Keys(terminal)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
