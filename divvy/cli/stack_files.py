"""Finds and reads stack files, in the working tree or in a git revision."""

import subprocess
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from divvy.model import Cluster, InvalidCluster, Problem, parse_cluster

CLUSTER_KEY = "divvy:cluster"
_PREFIX, _SUFFIX = "Pulumi.", ".yaml"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CannotRead(Exception):
    """A stack file that cannot be found or read; the text says what would be right."""


@dataclass(frozen=True)
class StackFile:
    """The text of a stack file, where it came from, and what to call its cluster."""

    name: str
    source: str
    text: str

    @cached_property
    def value(self) -> object:
        """Return the ``divvy:cluster`` value as YAML has it."""
        try:
            document = yaml.load(self.text, Loader=_Loader)  # noqa: S506 - a safe loader
        except yaml.YAMLError as error:
            raise CannotRead(f"{self.source} is no YAML: {_yaml_reason(error)}") from None
        config = document.get("config") if isinstance(document, dict) else None
        if not isinstance(config, dict) or CLUSTER_KEY not in config:
            raise CannotRead(
                f"{self.source} has no `config: {{{CLUSTER_KEY}: …}}`; a stack file begins with it"
            )
        return config[CLUSTER_KEY]

    def cluster(self) -> Cluster:
        """Return the validated cluster; raise InvalidCluster with every problem."""
        value = self.value
        twice = self._duplicates()
        try:
            cluster = parse_cluster(value)
        except InvalidCluster as invalid:
            raise InvalidCluster([*twice, *invalid.problems]) from None
        if twice:
            raise InvalidCluster(twice)
        return cluster

    def line(self, problem: Problem) -> int | None:
        """Return the line where a problem is, or the nearest line above it that exists."""
        node: Any = self._tree
        found: int | None = None
        for key in ("config", CLUSTER_KEY, *problem.keys):
            here = _child(node, key)
            if here is None:
                return found
            node, found = here
        return found

    @cached_property
    def _tree(self) -> yaml.Node | None:
        return yaml.compose(self.text, Loader=_Loader)

    def _duplicates(self) -> list[Problem]:
        """Find keys that are written twice; YAML would silently keep the last."""
        tree: yaml.Node | None = self._tree
        for key in ("config", CLUSTER_KEY):
            below = _child(tree, key)
            if below is None:
                return []
            tree = below[0]
        found: list[Problem] = []
        assert tree is not None
        _walk_duplicates(tree, (), found, set())
        return found


def read_stack(stack: str | None, file: Path | None) -> StackFile:
    """Read the stack of that name, or that file; exactly one of them is given."""
    if (stack is None) == (file is None):
        raise CannotRead("name a stack with -s <stack>, or a file with --file FILE (one of them)")
    if file is not None:
        return _read_path(file)
    assert stack is not None
    return _read_path(stack_path(stack))


def stack_path(stack: str) -> Path:
    """Return the file of a stack: ``stacks/Pulumi.<stack>.yaml`` of the project around here."""
    folder = _stacks_folder()
    path = folder / f"{_PREFIX}{stack}{_SUFFIX}"
    if not path.is_file():
        names = sorted(_stack_name(known) for known in folder.glob(f"{_PREFIX}*{_SUFFIX}"))
        known = ", ".join(names) or "none"
        raise CannotRead(f"there is no stack {stack} ({path}); the stacks here are: {known}")
    return path


def read_side(text: str, other: str | None) -> StackFile:
    """Read one side of a diff: a file, a stack, ``REV:path``, or ``REV`` of the other side."""
    if Path(text).is_file():
        return _read_path(Path(text))
    revision, colon, path = text.partition(":")
    if colon and path:
        return _read_revision(revision, Path(path))
    try:
        return _read_path(stack_path(text))
    except CannotRead as unknown:
        if not _is_revision(text):
            raise CannotRead(
                f"{text} is no file, no stack and no git revision: {unknown}"
            ) from None
    if other is None or _is_only_revision(other):
        raise CannotRead(
            f"{text} is a revision; write {text}:<path> to say which stack file of it is meant"
        )
    where = other.partition(":")[2] if ":" in other and not Path(other).is_file() else other
    return _read_revision(text, Path(where) if Path(where).suffix else stack_path(where))


def _is_only_revision(text: str) -> bool:
    if ":" in text or Path(text).is_file():
        return False
    try:
        stack_path(text)
    except CannotRead:
        return True
    return False


def _read_path(path: Path) -> StackFile:
    try:
        return StackFile(_stack_name(path), str(path), path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CannotRead(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CannotRead(f"{path} is no text in UTF-8") from None


def _read_revision(revision: str, path: Path) -> StackFile:
    here = path if path.is_absolute() else Path.cwd() / path
    done = _git(
        "show", f"{revision}:./{path}" if not path.is_absolute() else f"{revision}:{_in_tree(here)}"
    )
    if done.returncode:
        reason = done.stderr.strip().removeprefix("fatal: ")
        raise CannotRead(f"git has no {revision}:{path}: {reason}")
    return StackFile(f"{_stack_name(path)}@{revision}", f"{revision}:{path}", done.stdout)


def _in_tree(path: Path) -> str:
    top = _git("rev-parse", "--show-toplevel").stdout.strip()
    return str(path.relative_to(top)) if top and path.is_relative_to(top) else str(path)


def _is_revision(text: str) -> bool:
    return _git("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}").returncode == 0


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotRead(
            "git is not installed; give files or stacks instead of revisions"
        ) from None


def _stacks_folder() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "stacks").is_dir():
            return folder / "stacks"
        if (folder / "Pulumi.yaml").is_file():
            return folder
    raise CannotRead(
        f"{here} is in no project: neither it nor a folder above has Pulumi.yaml or stacks/"
    )


def _stack_name(path: Path) -> str:
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _yaml_reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}: " if mark is not None else ""
    return where + str(getattr(error, "problem", None) or error)


def _child(node: yaml.Node | None, key: Hashable) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if name.value == str(key):
                return value, name.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key].start_mark.line + 1
    return None


def _walk_duplicates(
    node: yaml.Node, keys: tuple[str | int, ...], found: list[Problem], seen: set[int]
) -> None:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _walk_duplicates(item, (*keys, index), found, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    names: set[str] = set()
    for name, value in node.value:
        below = (*keys, str(name.value))
        if name.value in names:
            path = ".".join(str(key) for key in below)
            line = name.start_mark.line + 1
            found.append(Problem(path, f"is there twice (again in line {line})", "keep one", below))
        names.add(str(name.value))
        _walk_duplicates(value, below, found, seen)
