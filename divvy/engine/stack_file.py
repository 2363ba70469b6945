"""Change one value in a stack's file, the file otherwise as people left it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from divvy.engine.errors import ProjectProblem
from divvy.engine.project import Project, stack_config, stack_file
from divvy.engine.state.secrets import Passphrase, passphrase_from


def set_value(project: Project, stack: str, key: str, value: str, *, secret: bool) -> None:
    """Set one value in a stack's file, the file otherwise as it was; raises ProjectProblem."""
    path = stack_file(project, stack)
    config = stack_config(project, stack)
    full = key if ":" in key else f"{project.name}:{key}"
    salt = config.salt
    text = json.dumps(value)
    if secret:
        crypter = Passphrase(salt, lambda: passphrase_from(os.environ))
        text = json.dumps({"secure": crypter.encrypt(value)})
        salt = crypter.salt
    lines = path.read_text().splitlines()
    lines = _with_entry(lines, full, text, path)
    if salt is not None and config.salt is None:
        lines.insert(0, f"encryptionsalt: {salt}")
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text("\n".join(lines) + "\n")
    scratch.replace(path)


def _with_entry(lines: list[str], key: str, text: str, path: Path) -> list[str]:
    """Return the lines with one entry of ``config`` set; a structured value is not replaced."""
    entry = f"  {key}: {text}"
    for number, line in enumerate(lines):
        if re.match(rf"  [\"']?{re.escape(key)}[\"']?:", line):
            follows = lines[number + 1] if number + 1 < len(lines) else ""
            if follows.startswith("   "):
                raise ProjectProblem(f"{path}: {key} is structured: edit the file")
            return [*lines[:number], entry, *lines[number + 1 :]]
    for number, line in enumerate(lines):
        if re.match(r"config:\s*(\{\s*\})?\s*(#.*)?$", line):
            return [*lines[:number], "config:", entry, *lines[number + 1 :]]
    return [*lines, "config:", entry]
