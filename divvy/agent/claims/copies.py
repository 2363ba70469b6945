"""Copies of what claims hold, one file beside each claim's CDI specification.

They last as long as the claim's containers can: until the node boots. If the checkpoint is gone,
they say what the pods of this node still hold, and as what their GPUs were offered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from divvy.agent.claims.record import ClaimRecord, ClaimState, HeldClaim, decoded, encoded
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file
from divvy.model.api_names import CLAIMS_DRIVER
from divvy.model.offered_gpu import OfferedGpu

# No ending that a container runtime reads.
_PREFIX, _SUFFIX = f"{CLAIMS_DRIVER}-claim-", ".held"
_VERSION = 1
_MODE = 0o600


def write_copy(folder: Path, claim: HeldClaim, record: ClaimRecord) -> None:
    """Copy a prepared claim, and its GPUs as they are offered; raises OSError."""
    offered = {uuid: gpu for uuid, gpu in record.offered.items() if uuid in claim.gpus}
    copied = ClaimRecord(offered, {claim.uid: replace(claim, state=ClaimState.PREPARE_COMPLETED)})
    content = json.dumps({"version": _VERSION, **encoded(copied)}, sort_keys=True).encode()
    path = _file(folder, claim.uid)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        is_written = read_regular_file(path) == content
    except OSError:
        is_written = False  # whatever is there instead is replaced
    if not is_written:
        replace_file(path, content, _MODE)


def remove_copy(folder: Path, uid: str) -> None:
    """Remove the copy of a claim that was given back; raises OSError."""
    _file(folder, uid).unlink(missing_ok=True)


def copied_claims(folder: Path) -> Iterable[str]:
    """Return the UIDs of the claims that have a copy."""
    return [
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        for path in folder.glob(f"{_PREFIX}*{_SUFFIX}")
    ]


@dataclass(frozen=True)
class Copies:
    """What all copies say together, and those that cannot be read: claim's UID → (file, why)."""

    record: ClaimRecord
    unreadable: Mapping[str, tuple[Path, str]]


def read_copies(folder: Path) -> Copies:
    """Read the copies of all claims."""
    offered: dict[str, OfferedGpu] = {}
    claims: dict[str, HeldClaim] = {}
    unreadable = {}
    for uid in sorted(copied_claims(folder)):
        path = _file(folder, uid)
        try:
            copied = _copied(read_regular_file(path), uid)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            unreadable[uid] = path, str(error)
            continue
        offered |= copied.offered
        claims |= copied.claims
    return Copies(ClaimRecord(offered, claims), unreadable)


def _copied(content: bytes, uid: str) -> ClaimRecord:
    """Read the copy of a claim; raises ValueError, KeyError, TypeError or AttributeError."""
    raw = json.loads(content)
    if raw["version"] != _VERSION:
        raise ValueError(f"version {raw['version']}")
    claims = decoded(raw)
    if claims.claims.keys() != {uid}:
        raise ValueError("it is of another claim")
    return claims


def _file(folder: Path, uid: str) -> Path:
    return folder / f"{_PREFIX}{uid}{_SUFFIX}"
