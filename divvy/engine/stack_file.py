"""Change one value in a stack's file, the file otherwise as people left it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import yaml

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
    changed = "\n".join(lines) + "\n"
    _check(path, changed, full, json.loads(text))
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(changed)
    scratch.replace(path)


def _with_entry(lines: list[str], key: str, text: str, path: Path) -> list[str]:
    """Return the lines with one entry of ``config`` set; a structured value is not replaced."""
    entry = f"  {key}: {text}"
    for number, line in enumerate(lines):
        if re.match(rf"  [\"']?{re.escape(key)}[\"']?:", line):
            end = number + 1
            while end < len(lines) and lines[end].startswith("   "):
                end += 1
            if any(not below.startswith("    secure:") for below in lines[number + 1 : end]):
                raise ProjectProblem(f"{path}: {key} is structured: edit the file")
            return [*lines[:number], entry, *lines[end:]]
    for number, line in enumerate(lines):
        if re.match(r"config:\s*(\{\s*\})?\s*(#.*)?$", line):
            return [*lines[:number], "config:", entry, *lines[number + 1 :]]
        if re.match(r"config:\s*\{.*\}\s*$", line):
            block = yaml.safe_dump(yaml.safe_load(line), default_flow_style=False, sort_keys=False)
            return _with_entry(
                [*lines[:number], *block.splitlines(), *lines[number + 1 :]], key, text, path
            )
    return [*lines, "config:", entry]


def _check(path: Path, text: str, key: str, value: Any) -> None:
    """Refuse a change that would say anything else than the file of before and the new value."""
    before = yaml.safe_load(path.read_text()) or {}
    try:
        after = yaml.safe_load(text)
        wished = {**(before.get("config") or {}), key: value}
        unharmed = after["config"] == wished
    except (yaml.YAMLError, TypeError, KeyError):
        unharmed = False
    if not unharmed:
        raise ProjectProblem(
            f"{path}: {key} cannot be set in the way this file is written: edit it, or write "
            "`config:` as a block with an indentation of two"
        )
