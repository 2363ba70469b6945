"""Where the state of a project's stacks is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from divvy.engine.errors import NotSupported
from divvy.stack.project import Project


def backend_root(project: Project, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder whose ``.pulumi`` holds the state; raises NotSupported.

    PULUMI_BACKEND_URL names it (``file://…``), else ``backend.url`` of the project; without
    either the project's folder is it. Any other backend is refused by name.
    """
    if environment.get("PULUMI_DIY_BACKEND_GZIP", "").lower() in ("1", "true"):
        raise NotSupported("PULUMI_DIY_BACKEND_GZIP: compressed state is not supported")
    url = environment.get("PULUMI_BACKEND_URL") or project.backend
    if not url:
        return project.folder
    if not url.startswith("file://"):
        raise NotSupported(f"the backend {url}: the embedded engine keeps state in files")
    path = url.removeprefix("file://").partition("?")[0]
    try:
        return Path(path).expanduser() if path.startswith(("/", "~")) else project.folder / path
    except RuntimeError:
        raise NotSupported(f"the backend {url}: that user's home folder is not known") from None
