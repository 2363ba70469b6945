"""Where the lab keeps things: the cache that outlives it and the state that does not."""

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
STATE = Path("/var/lib/divvy-lab")
KUBECONFIG = STATE / "kubeconfig"
PKI = STATE / "pki"
LOGS = STATE / "logs"
NODES = STATE / "nodes"


def cache() -> Path:
    """Return the directory for built tools and images; it is shared by all work trees."""
    chosen = os.environ.get("DIVVY_CACHE")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "divvy"


def node_state(name: str) -> Path:
    """Return the directory that holds everything of one node."""
    return NODES / name
