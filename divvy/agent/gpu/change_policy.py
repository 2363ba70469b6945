"""The change policy: what happens to pods that are in the way of a change, and for how long."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """What happens to pods that are in the way: "wait", "evict" or "never", and how long."""

    kind: str
    deadline: float
