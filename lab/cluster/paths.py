"""Where the lab keeps things: the cache that outlives it and the state that does not."""

import os
import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
LAB = REPOSITORY / "lab"
# A second lab beside the first needs a name of its own; it is part of interfaces' names.
NAME = os.environ.get("DIVVY_LAB", "lab")
# It keeps there what is to be put back on this machine's GPUs.
_OF_VERIFY = "verify"
STATES = Path("/var/lib")
STATE = STATES / f"divvy-{NAME}"
KUBECONFIG = STATE / "kubeconfig"
PKI = STATE / "pki"
LOGS = STATE / "logs"
NODES = STATE / "nodes"


def cache() -> Path:
    """Return the directory for built tools and images; it is shared by all work trees."""
    chosen = os.environ.get("DIVVY_CACHE")
    if chosen:
        # Its programs are started from many folders: a relative path begins at the checkout.
        return REPOSITORY / chosen
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # As the XDG specification has it, a relative path counts as none.
    return (base if base.is_absolute() else Path.home() / ".cache") / "divvy"


def name_problem() -> str | None:
    """Return why the lab cannot have its name, None if it can."""
    if not re.fullmatch("[a-z0-9]{1,6}", NAME):
        return f"DIVVY_LAB is {NAME!r}, one to six lower-case letters or digits are expected"
    if NAME == _OF_VERIFY:
        owner = f"{STATES}/divvy-{NAME} belongs to `divvy verify --bare`"
        return f"DIVVY_LAB is {NAME!r}, and {owner}: choose another name"
    return None


def node_state(name: str) -> Path:
    """Return the directory that holds everything of one node."""
    return NODES / name
