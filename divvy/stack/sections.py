"""The sections of a stack file as values: everything that is wrong at once, with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from divvy.model import Cluster, ClusterDocument, InvalidValue, Problem, parse_document
from divvy.model.phrases import plural
from divvy.stack.errors import StackError
from divvy.stack.file import StackFile, read_path
from divvy.stack.keys import CLUSTER, MISPLACED, SECTIONS, unread_keys
from divvy.stack.project import find_project
from divvy.stack.yaml_text import Keys, YamlText

_T = TypeVar("_T")


class InvalidStack(StackError):
    """A stack file with errors; the text has one line for each, in the file's order."""

    def __init__(self, file: StackFile, section: str, problems: Iterable[Problem]):
        unread = (
            (key.keys, Problem(key.path, key.reason, key.remedy))
            for key in unread_keys(file.document)
        )
        below = ((("config", section, *problem.keys), problem) for problem in problems)
        self.problems, text = report(file, (*below, *unread))
        super().__init__(text)


def report(
    file: YamlText, problems: Iterable[tuple[Keys, Problem]]
) -> tuple[tuple[Problem, ...], str]:
    """Return problems, each given with its keys, in the file's order, and what to print."""
    rows = sorted(
        ((file.line(keys) or 0, problem) for keys, problem in problems), key=lambda row: row[0]
    )
    lines = [f"{file.source} has {plural(len(rows), 'error')}:"]
    for line, problem in rows:
        where = f"line {line}: " if line else ""
        lines.append(f"  {where}{problem.path}: {problem.reason}")
        if problem.remedy:
            lines.append(f"      {problem.remedy}")
    return tuple(problem for _, problem in rows), "\n".join(lines)


def read_cluster(file: StackFile) -> Cluster:
    """Return the cluster that a stack file describes; raises StackError."""
    return read_document(file).cluster


def read_document(file: StackFile) -> ClusterDocument:
    """Return the cluster that a stack file describes, with its value; raises StackError."""
    return read_section(file, CLUSTER, parse_document)


def invalid_cluster(folder: Path, stack: str, invalid: InvalidValue) -> InvalidStack:
    """Return what is wrong with the cluster of a stack of a folder's project, with its lines."""
    file = read_path(find_project(folder).stack_path(stack))
    return InvalidStack(file, CLUSTER, invalid.problems)


def cluster_problem(folder: Path, stack: str) -> StackError | None:
    """Return what is wrong with the file of a stack of a folder's project, None if nothing is."""
    try:
        read_cluster(read_path(find_project(folder).stack_path(stack)))
    except StackError as problem:
        return problem
    return None


def read_section(file: StackFile, section: str, parse: Callable[[object], _T]) -> _T:
    """Return a section's value; raises StackError, InvalidStack with every problem at once."""
    try:
        value = file.section(section)
    except StackError:
        if "config" in file.document or {*SECTIONS, *MISPLACED} & file.document.keys():
            file.refuse_unread_keys()  # a slip in the section's name, rather than no section
        raise
    problems = [_twice(section, again.keys, again.line) for again in file.duplicates]
    try:
        parsed = parse(value)
    except InvalidValue as invalid:
        problems += invalid.problems
    else:
        if not problems and not any(unread_keys(file.document)):
            return parsed
    raise InvalidStack(file, section, problems)


def _twice(section: str, keys: Keys, line: int) -> Problem:
    inside = ("config", section)
    within = keys[:2] == inside and len(keys) > 2
    path = ".".join(str(key) for key in (keys[2:] if within else keys))
    return Problem(
        path, f"is defined twice (again in line {line})", "keep one", keys[2:] if within else ()
    )
