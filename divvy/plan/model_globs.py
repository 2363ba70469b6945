"""What globs over GPU models have in common: which are one, lie within another, or can meet."""

import re
from dataclasses import dataclass
from functools import cache

from divvy.model import DeviceSelector, gpu_models

_SET = re.compile(r"\[(!?)((?:[0-9a-z]-[0-9a-z]|[0-9a-z _.])+|[*?\[])\]")


@dataclass(frozen=True)
class _One:
    """One character: one of a set, or, ``but``, any that is not."""

    characters: frozenset[str]
    but: bool = False

    def meets(self, other: "_One") -> bool:
        if self.but and other.but:
            return True
        if self.but or other.but:
            named, rest = (other, self) if self.but else (self, other)
            return bool(named.characters - rest.characters)
        return bool(self.characters & other.characters)

    def within(self, other: "_One") -> bool:
        if not self.but:
            common = self.characters & other.characters
            return not common if other.but else common == self.characters
        return other.but and other.characters <= self.characters

    def __str__(self) -> str:
        if not self.characters:
            return "?"
        text = "".join(sorted(self.characters))
        plain = len(text) == 1 and text not in "*?[" and not self.but
        return text if plain else f"[{'!' * self.but}{text}]"


_ANY = _One(frozenset(), but=True)
# Any number of characters.
_STAR = None
_Glob = tuple[_One | None, ...]


def canonical_glob(text: str) -> str:
    """Return one text for all spellings of a glob: letter case, ``**``, ``*?``, sets."""
    glob = _parsed(text.casefold())
    if glob is None:
        return text.casefold()
    return "".join("*" if one is _STAR else str(one) for one in glob)


def lies_within(inner: str, outer: str) -> bool:
    """Return whether a glob certainly takes no model that the other does not take."""
    if canonical_glob(inner) == canonical_glob(outer):
        return True
    first, second = _parsed(inner.casefold()), _parsed(outer.casefold())
    return first is not None and second is not None and _within(first, second)


@cache
def can_meet(first: str, second: str) -> bool:
    """Return whether one GPU may be taken by both globs, under one of its names or under two."""
    one, other = _parsed(first.casefold()), _parsed(second.casefold())
    return one is None or other is None or _meet(one, other) or _known_to_meet(first, second)


def _known_to_meet(first: str, second: str) -> bool:
    selectors = (DeviceSelector(model=first), DeviceSelector(model=second))
    return any(
        all(selector.takes(None, "", (product, model.name)) for selector in selectors)
        for model in gpu_models().values()
        for product in model.products
    )


@cache
def _parsed(text: str) -> _Glob | None:
    """Return a glob in one form, None if it has a set that is not read here."""
    glob: list[_One | None] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character == "[" and "]" in text[at + 1 :]:
            found = _SET.match(text, at - 1)
            if found is None or not _characters(found[2]):
                return None
            glob.append(_One(_characters(found[2]), found[1] == "!"))
            at = found.end()
        elif character == "*":
            glob.append(_STAR)
        else:
            glob.append(_ANY if character == "?" else _One(frozenset(character)))
    return _in_one_order(glob)


def _characters(text: str) -> frozenset[str]:
    found: set[str] = set()
    for one in re.findall(r".-.|.", text):
        found.update(map(chr, range(ord(one[0]), ord(one[-1]) + 1)))
    return frozenset(found)


def _in_one_order(glob: list[_One | None]) -> _Glob:
    """Return a glob that has, in a row of stars and single characters, one star at its end."""
    ordered: list[_One | None] = []
    star = False
    for one in glob:
        if one is _STAR:
            star = True
            continue
        if star and one != _ANY:
            ordered.append(_STAR)
            star = False
        ordered.append(one)
    return (*ordered, _STAR) if star else tuple(ordered)


def _meet(one: _Glob, other: _Glob) -> bool:
    """Return whether one text matches both."""
    reached = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        at, there = waiting.pop()
        if at == len(one) and there == len(other):
            return True
        steps: list[tuple[int, int]] = []
        first = one[at] if at < len(one) else _One(frozenset())
        second = other[there] if there < len(other) else _One(frozenset())
        if first is _STAR:
            steps += [(at + 1, there)] + [(at, there + 1)] * (there < len(other))
        if second is _STAR:
            steps += [(at, there + 1)] + [(at + 1, there)] * (at < len(one))
        if first is not _STAR and second is not _STAR and first.meets(second):
            steps.append((at + 1, there + 1))
        for step in steps:
            if step not in reached:
                reached.add(step)
                waiting.append(step)
    return False


def _within(inner: _Glob, outer: _Glob) -> bool:
    """Return whether the outer glob takes the inner one's parts, a star of it only by a star."""
    ends = {0}
    for part in outer:
        if part is _STAR:
            ends = set(range(min(ends), len(inner) + 1)) if ends else ends
        else:
            ends = {
                at + 1
                for at in ends
                if at < len(inner) and (one := inner[at]) is not _STAR and one.within(part)
            }
    return len(inner) in ends
