"""YAML text with its line numbers: what a mistake in it is reported with."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, TextIO

import yaml

from divvy.kubernetes_yaml import NOT_YAML, SafeLoader, is_template
from divvy.stack.errors import StackError


class _Loader(SafeLoader):
    """Takes plain scalars for what the official CLI takes them for (gopkg.in/yaml.v3, resolve.go).

    PyYAML's own rules are those of YAML 1.1, where `yes` is true and 1:30 is ninety.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


def _number(loader: Any, node: yaml.ScalarNode) -> int:
    digits = loader.construct_scalar(node).replace("_", "").lower()
    sign, digits = (-1 if digits[0] == "-" else 1), digits.lstrip("+-")
    octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
    return sign * int(digits, 8 if octal else 0)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (
        "int",
        r"[-+]?(0b_*[01][01_]*|0x_*[0-9a-fA-F][0-9a-fA-F_]*|0o_*[0-7][0-7_]*"
        r"|0[0-7_]*|[1-9][0-9_]*)",
        "-+0123456789",
    ),
    (
        "float",
        r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
    ("timestamp", yaml.SafeLoader.yaml_implicit_resolvers["2"][-1][1].pattern, "0123456789"),
):
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$", re.X), list(_first)
    )
_Loader.add_constructor("tag:yaml.org,2002:int", _number)
STACK_RESOLVERS = _Loader.yaml_implicit_resolvers

# By what libyaml says is wrong.
_REMEDIES = {
    "found character that cannot start any token": "indent with spaces, not with tabs; put a value "
    "that begins with @, ` or % in quotes",
    "mapping values are not allowed in this context": "put `{key: value}` in braces, or on a line "
    "of its own that is indented further; put a text that contains `: ` in quotes",
}

Keys = tuple[str | int, ...]

# A cluster of 100,000 values has a tenth of this.
MAX_CHARACTERS = 16 * 1024 * 1024


@dataclass(frozen=True)
class Duplicate:
    """A key that a mapping has twice: the keys that lead to it and the line of the second."""

    keys: Keys
    line: int


@dataclass(frozen=True)
class YamlText:
    """A YAML mapping as text; ``source`` is what errors call it."""

    source: str
    text: str

    @cached_property
    def document(self) -> dict[str, Any]:
        """Return the mapping; raises StackError if the text is not one."""
        try:
            document = yaml.load(self.text, Loader=_Loader)
        except NOT_YAML as error:
            raise StackError(f"{self.source} is not YAML: {reason_of(error, self.text)}") from None
        if not isinstance(document, dict):
            raise StackError(f"{self.source} is not a mapping")
        return document

    @cached_property
    def duplicates(self) -> list[Duplicate]:
        """Return the keys that are written twice: YAML would silently keep the last."""
        return [] if self._tree is None else list(_duplicates(self._tree, (), set()))

    def refuse_duplicates(self) -> None:
        """Raise StackError if a key is written twice."""
        if self.duplicates:
            lines = [
                f"  line {again.line}: {'.'.join(map(str, again.keys))}: is defined twice; keep one"
                for again in self.duplicates
            ]
            raise StackError("\n".join([f"{self.source} has duplicate keys:", *lines]))

    def line(self, keys: Keys) -> int | None:
        """Return the line that keys lead to, or the nearest line above it that exists."""
        node: Any = self._tree
        line: int | None = None
        for key in keys:
            child = _child(node, key)
            if child is None:
                return line
            node, line = child
        return line

    def node(self, keys: Keys) -> yaml.Node:
        """Return the node that keys lead to; raises KeyError if there is none."""
        node = self._tree
        for key in keys:
            child = _child(node, key)
            if child is None:
                raise KeyError(key)
            node, _ = child
        assert node is not None
        return node

    @cached_property
    def _tree(self) -> yaml.Node | None:
        try:
            return yaml.compose(self.text, Loader=_Loader)
        except NOT_YAML as error:
            raise StackError(f"{self.source} is not YAML: {reason_of(error, self.text)}") from None


def read_text(path: Path) -> str:
    """Return a file's text; raises StackError if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as file:
            return text_of(file, str(path))
    except OSError as error:
        raise StackError(f"cannot read {path}: {error.strerror}") from None


def text_of(file: TextIO, source: str) -> str:
    """Return the text of an open file; raises StackError if it is not text, or too long."""
    try:
        text = file.read(MAX_CHARACTERS + 1)
    except UnicodeDecodeError:
        raise StackError(f"{source} is not text in UTF-8") from None
    if len(text) > MAX_CHARACTERS:
        raise StackError(
            f"{source} is longer than {MAX_CHARACTERS:,} characters: it is not a stack file"
        )
    return text


def reason_of(error: Exception, text: str) -> str:
    """Describe in one line why a text is not YAML."""
    if is_template(text):
        return "it is a template (Helm, Go or Jinja); render it first"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not isinstance(error, yaml.YAMLError):
        why = str(error) if isinstance(error, ValueError) and "digits" not in str(error) else ""
        what = "it contains an invalid date, number or value after a tag (!!)"
        return f"{what}{f' ({why})' if why else ''}: put text in quotes"
    mark, start = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    reason = str(getattr(error, "problem", None) or error)
    if mark is not None and start is not None and start.line < mark.line:
        reason += f", {error.context} that begins in line {start.line + 1}"  # type: ignore[attr-defined]
    remedy = _REMEDIES.get(str(getattr(error, "problem", None)))
    return f"{where}{reason}{f': {remedy}' if remedy else ''}"


def _child(node: yaml.Node | None, key: Hashable) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return value, name.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key].start_mark.line + 1
    return None


def _duplicates(node: yaml.Node, keys: Keys, visited: set[int]) -> Iterator[Duplicate]:
    # An alias leads to a node once more.
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _duplicates(item, (*keys, index), visited)
    if isinstance(node, yaml.MappingNode):
        names: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in names:
                yield Duplicate((*keys, name), key.start_mark.line + 1)
            names.add(name)
            yield from _duplicates(value, (*keys, name), visited)
