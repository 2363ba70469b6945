"""CRI-O: what its configuration lacks for CDI, and the drop-in that gives it. Not run by us yet."""

from __future__ import annotations

import tomllib

from divvy.agent.node_runtime.containerd import SPEC_FOLDERS, CannotConfigure, table_at

UNIT = "crio.service"
SOCKET = "/var/run/crio/crio.sock"
DROP_IN = "/etc/crio/crio.conf.d/90-divvy.conf"


def missing(text: str) -> tuple[str, ...]:
    """Return what an effective configuration (``crio config``) lacks for CDI."""
    try:
        runtime = table_at(tomllib.loads(text), "crio", "runtime")
    except ValueError as error:
        raise CannotConfigure(f"CRI-O's effective configuration cannot be read: {error}") from error
    folders = runtime.get("cdi_spec_dirs") or list(SPEC_FOLDERS)
    lacks = [] if runtime.get("enable_cdi", True) is True else ["enable_cdi is off"]
    lacks += [f"cdi_spec_dirs lacks {name}" for name in SPEC_FOLDERS[1:] if name not in folders]
    return tuple(lacks)


def drop_in() -> str:
    """Return the drop-in."""
    folders = ", ".join(f'"{name}"' for name in SPEC_FOLDERS)
    return f"[crio.runtime]\nenable_cdi = true\ncdi_spec_dirs = [{folders}]\n"
