"""The CDI specification of a claim: a file of its own, written whenever the claim is prepared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from divvy.agent.claims.record import HeldClaim, HeldDevice
from divvy.agent.inject.cdi import cdi_spec, remove_unless, spec_bytes, write_spec
from divvy.agent.inject.container_edits import LIMITS, ContainerEdits, Mount
from divvy.agent.inject.hook import HookCall
from divvy.agent.inject.problem import InjectionProblem, NotWritten
from divvy.model.api_names import CLAIM_CDI_KIND, CLAIMS_DRIVER

_PREFIX, _SUFFIX = f"{CLAIMS_DRIVER}-claim-", ".json"


@dataclass(frozen=True)
class ClaimEdits:
    """What containers of claims get: the driver, or (``limited``) a limiter in front of it.

    ``limited`` is by the limiter's version, and where its libraries are in ``limiters``.
    ``devices`` are by UUID.
    """

    common: ContainerEdits
    limited: Mapping[str, ContainerEdits]
    devices: Mapping[str, ContainerEdits]
    hook: HookCall | None
    limiters: Mapping[str, Path]


def cdi_name(claim: HeldClaim, held: HeldDevice) -> str:
    """Return the name of a device: whose it is, what it is, and of which GPU.

    The UUID of a MIG device is not in it. Instances that are made again after a boot have others,
    and the kubelet asks for all names that it was ever told of a claim.
    """
    share = f"_{held.share_id[:8]}" if held.share_id else ""
    return f"{claim.uid}_{held.device.name}_{held.uuid}{share}"


def qualified_name(name: str) -> str:
    """Return a device's name as the container runtime is told it."""
    return f"{CLAIM_CDI_KIND}={name}"


def write_claim(
    folder: Path,
    claim: HeldClaim,
    uuids: Mapping[str, str],
    share: tuple[Mount, ...],
    edits: ClaimEdits,
) -> None:
    """Write the specification of a claim; raises InjectionProblem.

    ``uuids`` maps its devices to GPUs and MIG devices, ``share`` are the files of its limits, none
    where it has none. Each device brings them along: what a container gets twice it has once.
    """
    common = edits.limited.get(claim.limiter) if share else edits.common
    if common is None:
        raise InjectionProblem("the limiter is not installed yet")
    missing = [uuid for uuid in uuids.values() if uuid not in edits.devices]
    if missing:
        raise InjectionProblem(f"{missing[0]} has no device node on this node now")
    devices = {
        cdi_name(claim, held): replace(edits.devices[uuids[held.device.name]], mounts=share)
        for held in claim.devices
    }
    hook = edits.hook
    if share and hook is not None:
        # If a container has a second claim, one of two mounts at a place is the other's.
        (limits,) = (mount.host for mount in share if mount.path == LIMITS)
        alone = (f"--limits={limits}", f"--limiter={edits.limiters[claim.limiter]}")
        hook = replace(hook, arguments=(*hook.arguments, *alone))
    spec = cdi_spec(common, devices, () if hook is None else (hook,), CLAIM_CDI_KIND)
    write_spec(folder, spec_bytes(spec), claim_file(claim.uid))


def keep_described(
    folder: Path,
    claim: HeldClaim,
    uuids: Mapping[str, str],
    devices: Mapping[str, ContainerEdits],
) -> None:
    """Remove the specification of a claim if it gives a device other nodes than it has now.

    ``uuids`` maps the claim's devices that exist, ``devices`` are by UUID. Raises InjectionProblem.
    """
    nodes = {
        cdi_name(claim, held): devices[uuid]
        for held in claim.devices
        for uuid in (uuids.get(held.device.name),)
        if uuid is not None and uuid in devices
    }
    try:
        remove_unless(folder / claim_file(claim.uid), nodes)
    except OSError as error:
        raise InjectionProblem(f"the CDI specification is not removed: {error}") from error


def remove_claim(folder: Path, uid: str) -> None:
    """Remove the specification of a claim; raises NotWritten."""
    try:
        (folder / claim_file(uid)).unlink(missing_ok=True)
    except OSError as error:
        raise NotWritten(f"the CDI specification is not removed: {error}") from error


def written_claims(folder: Path) -> Iterable[str]:
    """Return the UIDs of the claims that have a specification."""
    return [
        path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        for path in folder.glob(f"{_PREFIX}*{_SUFFIX}")
    ]


def specification_files(folder: Path) -> Mapping[str, tuple[int, int, int]]:
    """Return inode, time of change and size of each claim's specification."""
    files = {}
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        with suppress(FileNotFoundError):
            status = path.lstat()
            files[path.name] = status.st_ino, status.st_mtime_ns, status.st_size
    return files


def claim_file(uid: str) -> str:
    """Return the name of the specification of a claim."""
    return f"{_PREFIX}{uid}{_SUFFIX}"
