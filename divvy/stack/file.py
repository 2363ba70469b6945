"""A stack file: its text, its sections, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from divvy.model.phrases import plural
from divvy.stack.errors import StackError
from divvy.stack.keys import CLUSTER, LAB, unread_keys
from divvy.stack.project import find_project, stack_name
from divvy.stack.yaml_text import YamlText, read_text

_HOLDS = {CLUSTER: "which describes the cluster", LAB: "which describes the lab"}


@dataclass(frozen=True)
class StackFile(YamlText):
    """The text of a stack file, where it came from, and the name of its stack."""

    name: str

    def refuse_unread_keys(self) -> None:
        """Raise StackError if the file has keys that nothing reads."""
        unread = list(unread_keys(self.document))
        if unread:
            lines = [f"{self.source} has {plural(len(unread), 'error')}:"]
            for key in unread:
                lines.append(f"  line {self.line(key.keys)}: {key.path}: {key.reason}")
                lines.append(f"      {key.remedy}")
            raise StackError("\n".join(lines))

    def section(self, key: str) -> object:
        """Return a section of ``config``; raises StackError if it is missing."""
        config = self.document.get("config")
        if not isinstance(config, dict) or key not in config:
            raise StackError(f"{self.source} has no `config: {{{key}: …}}`, {_HOLDS[key]}")
        return config[key]


def read_stack(stack: str | None, file: Path | None) -> StackFile:
    """Read the stack of that name, or that file; exactly one of them is given."""
    if (stack is None) == (file is None):
        raise StackError(
            "name a stack with -s <stack> or PULUMI_STACK, or a file with --file FILE (one of them)"
        )
    if file is not None:
        return read_path(file)
    assert stack is not None
    return read_path(stack_path(stack))


def stack_path(stack: str) -> Path:
    """Return the file of a stack of the project around the current directory."""
    return find_project(Path.cwd()).stack_path(stack)


def read_path(path: Path) -> StackFile:
    """Read the stack file at a path; raises StackError."""
    return StackFile(str(path), read_text(path), stack_name(path))
