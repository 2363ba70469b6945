"""The Pulumi project and its stack files: Pulumi.yaml, Pulumi.<stack>.yaml."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from divvy.engine.errors import NotSupported, ProjectProblem


@dataclass(frozen=True)
class Project:
    """A Pulumi project: its folder, name, program folder and where its stack files lie."""

    folder: Path
    name: str
    main: Path
    stack_folder: Path


@dataclass(frozen=True)
class StackConfig:
    """The configuration of a stack: "namespace:key" → text as Pulumi hands it to programs.

    Structured values are compact JSON. ``sealed`` are encrypted values by key.
    """

    values: Mapping[str, str]
    sealed: Mapping[str, str]
    salt: str | None


def find_project(start: Path) -> Project:
    """Return the project whose Pulumi.yaml lies in ``start`` or above; raises ProjectProblem."""
    for folder in (start, *start.parents):
        path = folder / "Pulumi.yaml"
        if path.is_file():
            return _project(folder, path)
    raise ProjectProblem(f"no Pulumi.yaml in {start} or above: run divvy inside a project")


def _project(folder: Path, path: Path) -> Project:
    raw = _mapping(path)
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        raise ProjectProblem(f"{path}: `name` is missing: give the project a name")
    runtime = raw.get("runtime")
    kind = runtime.get("name") if isinstance(runtime, dict) else runtime
    if kind != "python":
        raise NotSupported(f"{path}: runtime {kind!r}: the embedded engine runs python programs")
    return Project(
        folder=folder,
        name=name,
        main=(folder / str(raw.get("main", "."))).resolve(),
        stack_folder=folder / str(raw.get("stackConfigDir", ".")),
    )


def stack_file(project: Project, stack: str) -> Path:
    """Return the path of a stack's configuration."""
    return project.stack_folder / f"Pulumi.{stack}.yaml"


def stack_config(project: Project, stack: str) -> StackConfig:
    """Read a stack's configuration; raises ProjectProblem."""
    path = stack_file(project, stack)
    if not path.is_file():
        known = sorted(
            found.name.removeprefix("Pulumi.").removesuffix(".yaml")
            for found in project.stack_folder.glob("Pulumi.?*.yaml")
        )
        raise ProjectProblem(
            f"no stack {stack!r}: {path} does not exist; known: {', '.join(known)}"
        )
    raw = _mapping(path)
    values, sealed = {}, {}
    for key, value in (raw.get("config") or {}).items():
        full = key if ":" in key else f"{project.name}:{key}"
        if isinstance(value, dict) and set(value) == {"secure"}:
            sealed[full] = str(value["secure"])
        else:
            values[full] = _text(value)
    return StackConfig(values, sealed, raw.get("encryptionsalt"))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _mapping(path: Path) -> dict[str, Any]:
    try:
        raw = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ProjectProblem(f"{path} is not YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ProjectProblem(f"{path}: a mapping is expected")
    return raw


def backend_root(project: Project, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder whose ``.pulumi`` holds the state.

    PULUMI_BACKEND_URL names it (``file://…``); without it the project's folder is
    it. Any other backend is refused by name.
    """
    url = environment.get("PULUMI_BACKEND_URL", "")
    if not url:
        return project.folder
    if not url.startswith("file://"):
        raise NotSupported(f"PULUMI_BACKEND_URL={url}: the embedded engine keeps state in files")
    return Path(url.removeprefix("file://")).expanduser()
