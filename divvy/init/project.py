"""The files of a new project: the Pulumi project, its program, and what CI runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Literal

from divvy.stack.yaml_flow import flow

_PULUMI = """\
name: {name}
description: How every GPU is partitioned and shared.
runtime: python
stackConfigDir: stacks
# What was changed by hand is seen and repaired.
options: {{refresh: always}}
"""
_STACKS = "stacks"
SCHEMA = "divvy.schema.json"
GITIGNORE = ".gitignore"
# The state of the stacks, with their secrets; reports; what Python leaves behind.
_IGNORED = (".pulumi/", "out/", "__pycache__/")
# A project may have its own, or those of an earlier version.
OWN_FILES = (GITIGNORE, f"{_STACKS}/{SCHEMA}")


# Whose CI reviews and proves the stacks.
Ci = Literal["github", "gitlab", "none"]
# Of `pip install` in the templates: what CI installs beside a cluster's credentials is pinned.
_EXTRAS = re.compile(r"\{\{([a-z,]+)\}\}")
_CI_FILES = {
    "github": ".github/workflows/divvy.yaml",
    "gitlab": ".gitlab-ci.yml",
}


def project_files(
    project: str, ci: Ci, requirement: Callable[[str], str], schema: str
) -> Mapping[str, str]:
    """Return the files that all stacks of a project of this name share, by path.

    ``requirement`` returns what installs this Divvy with some extras; ``schema`` is the JSON
    Schema of stack files, for editors.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", project).strip("-.") or "gpus"
    templates = files("divvy.init") / "templates"
    shared = {
        # In quotes where YAML would take it for a number or a date.
        "Pulumi.yaml": _PULUMI.format(name=flow(name)),
        "__main__.py": (templates / "program.py.txt").read_text(encoding="utf-8"),
        GITIGNORE: "".join(f"{line}\n" for line in _IGNORED),
        f"{_STACKS}/{SCHEMA}": schema,
    }
    if ci in _CI_FILES:
        text = (templates / f"{ci}.yaml").read_text(encoding="utf-8")
        shared[_CI_FILES[ci]] = _EXTRAS.sub(lambda match: requirement(match[1]), text)
    return shared


def not_ignored(gitignore: str) -> list[str]:
    """Return what a project's .gitignore lacks."""
    ignored = {line.strip().strip("/") for line in gitignore.splitlines()}
    return [line for line in _IGNORED if line.strip("/") not in ignored]


def stack_file(name: str) -> str:
    """Return the path of a stack's file in the project."""
    return f"{_STACKS}/Pulumi.{name}.yaml"
