"""The Pulumi project around a folder and the stack files that belong to it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from divvy.stack.errors import StackError
from divvy.stack.yaml_text import YamlText, read_text

_PREFIX, _SUFFIX = "Pulumi.", ".yaml"
_FILE = "Pulumi.yaml"
# tokens.ValidateProjectName of Pulumi's CLI: the state's folder has this name, too.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
# Keys of Pulumi.yaml that change what a run does, and that the embedded engine does not know.
_UNSUPPORTED = {
    "config": "write the values into the stack file",
    "requiredPulumiVersion": "the embedded engine is not a Pulumi release",
    "options": "use the command `divvy refresh`",
    "plugins": "the embedded engine has its own providers",
    "packages": "the embedded engine has its own providers",
}


@dataclass(frozen=True)
class Project:
    """A Pulumi project: its folder, name, runtime, program folder and folder of stack files.

    ``backend`` is the URL of its state, ``virtualenv`` a folder, "" if it names none;
    ``unsupported`` are the keys that the embedded engine refuses, with what to do instead.
    """

    folder: Path
    name: str
    runtime: str
    main: Path
    stack_folder: Path
    backend: str = ""
    virtualenv: str = ""
    unsupported: Mapping[str, str] = field(default_factory=dict)

    def stacks(self) -> list[str]:
        """Return the names of the stacks that have a file, sorted."""
        files = filter(is_stack_file, self.stack_folder.glob(f"{_PREFIX}*"))
        return sorted(stack_name(file) for file in files)

    def stack_path(self, stack: str) -> Path:
        """Return the path of a stack's file; raises StackError if there is none."""
        path = self.stack_folder / f"{_PREFIX}{stack}{_SUFFIX}"
        if not path.is_file():
            if stack.endswith((".yaml", ".yml")):
                raise StackError(f"{stack!r} is a file, not a stack: use --file {stack}")
            known = ", ".join(self.stacks()) or "none"
            raise StackError(f"no stack {stack!r}: {path} does not exist; known: {known}")
        return path


def find_project(start: Path) -> Project:
    """Return the project whose Pulumi.yaml is in ``start`` or above; raises StackError."""
    for folder in (start, *start.parents):
        path = folder / _FILE
        if path.is_file():
            return _project(folder, YamlText(str(path), read_text(path)))
    raise StackError(f"no {_FILE} in {start} or above: run divvy inside a project")


def is_stack_file(path: Path) -> bool:
    """Return whether a path is named as a stack file is: ``Pulumi.<stack>.yaml``."""
    return path.match(f"{_PREFIX}?*{_SUFFIX}")


def stack_name(path: Path) -> str:
    """Return the name of the stack that a file belongs to."""
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _project(folder: Path, file: YamlText) -> Project:
    file.refuse_duplicates()
    raw = file.document
    name = _text(file, raw, "name")
    if not name:
        raise StackError(f"{file.source}: `name` is missing: give the project a name")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise StackError(
            f"{file.source}: `name` is {name!r}: 1 to 100 letters, digits, '-', '_' and '.' are "
            "expected"
        )
    short = isinstance(raw.get("runtime"), str)
    runtime = {"name": raw["runtime"]} if short else _mapping(file, raw, "runtime")
    return Project(
        folder=folder,
        name=name,
        runtime=_text(file, runtime, "name", "runtime."),
        main=(folder / _text(file, raw, "main")).resolve(),
        stack_folder=folder / _text(file, raw, "stackConfigDir"),
        backend=_text(file, _mapping(file, raw, "backend"), "url", "backend."),
        virtualenv=_text(
            file, _mapping(file, runtime, "options", "runtime."), "virtualenv", "runtime.options."
        ),
        unsupported={key: why for key, why in _UNSUPPORTED.items() if raw.get(key)},
    )


def _text(file: YamlText, mapping: Mapping[str, Any], key: str, parent: str = "") -> str:
    """Return a text, "" for none."""
    value = mapping.get(key)
    if not isinstance(value, str | None):
        raise StackError(f"{file.source}: `{parent}{key}` is not a string: put it in quotes")
    return value or ""


def _mapping(
    file: YamlText, mapping: Mapping[str, Any], key: str, parent: str = ""
) -> Mapping[str, Any]:
    """Return a mapping, an empty one for none."""
    value = mapping.get(key)
    if not isinstance(value, dict | None):
        raise StackError(f"{file.source}: `{parent}{key}` is not a mapping")
    return value or {}
