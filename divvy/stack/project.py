"""The Pulumi project around a folder and the stack files that belong to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from divvy.stack.errors import StackError
from divvy.stack.yaml_text import YamlText, read_text

_PREFIX, _SUFFIX = "Pulumi.", ".yaml"
_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Project:
    """A project, as Pulumi has them too: its folder, and the folder of its stack files."""

    folder: Path
    stack_folder: Path

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
    raise StackError(
        f"no Divvy project here or above (no {_FILE} in {start}); `divvy init NAME` makes one"
    )


def is_stack_file(path: Path) -> bool:
    """Return whether a path is named as a stack file is: ``Pulumi.<stack>.yaml``."""
    return path.match(f"{_PREFIX}?*{_SUFFIX}")


def stack_name(path: Path) -> str:
    """Return the name of the stack that a file belongs to."""
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def _project(folder: Path, file: YamlText) -> Project:
    file.refuse_duplicates()
    stack_folder = file.document.get("stackConfigDir")
    if not isinstance(stack_folder, str | None):
        raise StackError(f"{file.source}: `stackConfigDir` is not a string: put it in quotes")
    return Project(folder, folder / (stack_folder or ""))
