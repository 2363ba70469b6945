"""CRI-O: what its configuration lacks for CDI, and the drop-in that gives it. Not run by us yet."""

from __future__ import annotations

import tomllib

from divvy.agent.node_runtime.containerd import SPEC_FOLDERS

DROP_IN = "/etc/crio/crio.conf.d/90-divvy.conf"


def missing(text: str) -> tuple[str, ...]:
    """Return what an effective configuration (``crio config``) lacks for CDI."""
    runtime = (tomllib.loads(text).get("crio") or {}).get("runtime") or {}
    lacks = [] if runtime.get("enable_cdi", True) is True else ["enable_cdi is off"]
    folders = runtime.get("cdi_spec_dirs") or list(SPEC_FOLDERS)
    lacks += [f"cdi_spec_dirs lacks {name}" for name in SPEC_FOLDERS[1:] if name not in folders]
    return tuple(lacks)


def drop_in() -> str:
    """Return the drop-in."""
    folders = ", ".join(f'"{name}"' for name in SPEC_FOLDERS)
    return f"[crio.runtime]\nenable_cdi = true\ncdi_spec_dirs = [{folders}]\n"
