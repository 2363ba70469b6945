"""Other device plugins in the kubelet's plugin folder."""

from __future__ import annotations

import socket
from pathlib import Path

from divvy.agent.decide.coexistence import sockets_of_others


def serving_sockets(folder: Path) -> dict[str, str]:
    """Return the sockets of others in the plugin folder on which somebody listens."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return {}
    found = sockets_of_others(names)
    return {name: who for name, who in found.items() if _listens(folder / name)}


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        try:
            client.connect(str(path))
        except OSError:
            return False  # left over from a plugin that is gone
    return True
