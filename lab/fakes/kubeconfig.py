"""A kubeconfig of one cluster and one user."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_kubeconfig(
    path: Path, server: str, user: Mapping[str, Any] | None = None, **cluster: Any
) -> Path:
    """Write it; ``cluster`` are further settings beside the server's address."""
    value = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(value))
    return path
