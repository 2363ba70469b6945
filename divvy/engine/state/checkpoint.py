"""The official checkpoint (deployment version 3) as a document, to and from values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from divvy.engine.errors import StateProblem
from divvy.engine.state.resource import ResourceState, now
from divvy.engine.state.sealing import Sealing
from divvy.engine.state.stack_state import Pending, StackState

CHECKPOINT_VERSION = 3
# The release of the official CLI whose state format this is; the manifest names a release.
COMPATIBLE_CLI_VERSION = "v3.272.0"


def check_version(raw: Mapping[str, Any], source: str) -> None:
    """Raise StateProblem for a checkpoint of another version, or another secrets provider."""
    version = raw["version"]
    if version != CHECKPOINT_VERSION:
        raise StateProblem(
            f"{source} has checkpoint version {version}; this engine reads and writes version "
            f"{CHECKPOINT_VERSION}: use a newer divvy, the file is untouched"
        )
    kind = _secrets_provider(raw).get("type", "passphrase")
    if kind not in ("passphrase", ""):
        raise StateProblem(f"the stack's secrets provider is {kind}: only passphrase is known")


def salt_of(raw: Mapping[str, Any]) -> str | None:
    """Return the salt line of a checkpoint."""
    salt: str | None = (_secrets_provider(raw).get("state") or {}).get("salt")
    return salt


def decoded(raw: Mapping[str, Any], sealing: Sealing) -> StackState:
    """Return what a checkpoint holds."""
    latest = raw["checkpoint"].get("latest") or {}
    return StackState(
        tuple(sealing.opened(resource) for resource in latest.get("resources") or ()),
        tuple(
            sealing.pending(resource["type"], resource["resource"])
            for resource in latest.get("pending_operations") or ()
        ),
    )


def encoded(
    name: str, resources: Iterable[ResourceState], pending: Iterable[Pending], sealing: Sealing
) -> dict[str, Any]:
    """Render a checkpoint of the stack ``name`` ("organization/project/stack")."""
    rendered = [sealing.sealed(resource) for resource in resources]
    unfinished = [
        {"resource": sealing.sealed(step.resource), "type": "creating"}
        for step in pending
        if step.resource is not None
    ]
    latest: dict[str, Any] = {
        "manifest": {
            "time": now(),
            "magic": hashlib.sha256(COMPATIBLE_CLI_VERSION.encode()).hexdigest(),
            "version": COMPATIBLE_CLI_VERSION,
        }
    }
    if sealing.salt is not None:
        latest["secrets_providers"] = {"type": "passphrase", "state": {"salt": sealing.salt}}
    if rendered:
        latest["resources"] = rendered
    if unfinished:
        latest["pending_operations"] = unfinished
    latest["metadata"] = {}
    return {"version": CHECKPOINT_VERSION, "checkpoint": {"stack": name, "latest": latest}}


def _secrets_provider(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    latest = raw["checkpoint"].get("latest") or {}
    provider: Mapping[str, Any] = latest.get("secrets_providers") or {}
    return provider
