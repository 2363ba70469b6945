"""Device IDs as the kubelet knows them: a UUID, or ``<uuid>::<n>`` for a replica.

A replica by MPS is ``<uuid>::mps-<n>``: whoever holds one is a client of the GPU's daemon, which no
other holder may be beside.
"""

from __future__ import annotations

from collections.abc import Iterable

SEPARATOR = "::"
_MPS = "mps-"


def device_ids(uuid: str, replicas: int, *, by_mps: bool = False) -> Iterable[str]:
    """Return the IDs under which a GPU or MIG device is listed."""
    if replicas == 1:
        return (uuid,)
    if by_mps:
        return (f"{uuid}{SEPARATOR}{_MPS}{number}" for number in range(replicas))
    return (replica_id(uuid, number) for number in range(replicas))


def replica_id(uuid: str, number: int) -> str:
    """Return the ID of one replica."""
    return f"{uuid}{SEPARATOR}{number}"


def physical(device_id: str) -> str:
    """Return the UUID behind a device ID."""
    return device_id.split(SEPARATOR, 1)[0]


def is_gpu(device_id: str) -> bool:
    """Return whether a GPU, a MIG device or a replica of one has this ID."""
    return device_id.startswith(("GPU-", "MIG-"))


def is_share(device_id: str) -> bool:
    """Return whether it is one replica of several."""
    return SEPARATOR in device_id


def is_client(device_id: str) -> bool:
    """Return whether its holder is a client of MPS."""
    return f"{SEPARATOR}{_MPS}" in device_id


def numeric_order(device_id: str) -> tuple[str, int]:
    """Return a sort key that puts replica 10 after replica 9."""
    uuid, _, number = device_id.partition(SEPARATOR)
    return uuid, int(number.removeprefix(_MPS) or 0)
