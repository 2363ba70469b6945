"""The holders of each device, from all that the kubelet shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

import grpc
from google.protobuf.message import DecodeError

from divvy.agent.gpu.holders import Holder, Ledger, Remembered, Version, forgotten, joined
from divvy.agent.inject.container_edits import LIMITS
from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.pod_resources import PodResources
from divvy.agent.plugin.kubelet_checkpoint import (
    UnreadableCheckpoint,
    allocate_answers,
    recorded_holders,
)
from divvy.agent.regular_file import read_regular_file
from divvy.model.api_names import limited_version

CHECKPOINT = "kubelet_internal_checkpoint"
_SILENT = "the kubelet does not answer"
_RESTARTED = "the kubelet restarted in the meantime"
_UNWRITTEN = "the kubelet has not written its checkpoint since this agent's start"
_NO_VERSION = (-1, -1)
# How long a new kubelet may take to have all its pods.
_SETTLED_SECONDS = 10.0


class HoldersUnknown(Exception):
    """The kubelet does not show who holds what: why."""


class DeviceHolders:
    """Joins PodResources, the kubelet's checkpoint, our own Allocate answers and what we saw.

    ``own_pod`` is the agent's own, "namespace/name": a kubelet that lists it has heard from the
    API. ``remembered`` is what the agent before this one saw.
    """

    def __init__(
        self,
        pod_resources: PodResources,
        plugin_folder: Path,
        own_pod: str,
        remembered: Remembered,
    ) -> None:
        self._pod_resources = pod_resources
        self._checkpoint = plugin_folder / CHECKPOINT
        self._socket = plugin_folder / "kubelet.sock"
        self._own_pod = own_pod
        self._kubelet = remembered.kubelet
        self._ready_since: float | None = None  # the first look at which it had its pods
        self._pods: frozenset[str] | None = None  # that were listed last
        # Whether these are all: pods are added by age, so who asks is younger than who is listed.
        self._has_pods = False
        self._looks = 0
        self._outdated = 0  # looks that began before a better one: answers may overtake each other
        self._known = remembered.known
        self._last = (*remembered.known, *remembered.forgotten)
        self._before = remembered.forgotten  # the kubelet's restart, and not shown since
        self._names = {holder.pod_uid: holder.pod for holder in self._last}
        self._initial_version = self._version()
        self._parsed: tuple[Version, tuple[Holder, ...]] = (None, ())
        self.ledger = Ledger()

    @property
    def remembered(self) -> Remembered:
        """Return what an agent after this one must know of holders."""
        return Remembered(self._kubelet, self._known, self._before)

    @property
    def forgotten(self) -> tuple[Holder, ...]:
        """Return who holds a device that the kubelet has forgotten, and is a pod of the node."""
        return tuple(holder for holder in self._before if holder.pod in (self._pods or ()))

    @property
    def last(self) -> tuple[Holder, ...]:
        """Return who held a device at the last look, without another one."""
        return self._last

    @property
    def suspects(self) -> frozenset[str]:
        """Return the IDs of the devices that somebody may hold, and the kubelet takes for free."""
        return frozenset(holder.device_id for holder in self._suspects)

    def holder(self, device_id: str) -> Holder | None:
        """Return the holder of a device that the kubelet considers free, None if it has none.

        A device may have been forgotten twice: of two holders one may have ended.
        """
        pods = self._pods if self._is_known and self._has_pods else None
        for holder in self._suspects:
            if holder.device_id == device_id and (pods is None or holder.pod in pods):
                return holder
        return None

    @property
    def _suspects(self) -> tuple[Holder, ...]:
        """Of a kubelet that was not looked at yet, all that the one before showed."""
        return self._before if self._is_known else self._last

    async def refresh(self) -> None:
        """Look at a kubelet that has just started or forgotten: it may allocate already.

        A pod that it has forgotten may have ended, and the next one asks for its device at once.
        """
        if not self._is_known or not self._is_settled or self._before:
            # An earlier list may lack a pod that the kubelet has heard of since.
            self._has_pods = False
            self._outdated = self._looks
            with suppress(HoldersUnknown):
                await self.holders()

    @property
    def _is_known(self) -> bool:
        return _version(self._socket) == self._kubelet

    @property
    def _is_settled(self) -> bool:
        since = self._ready_since
        return since is not None and monotonic() - since > _SETTLED_SECONDS

    def allocated(self, resource: str, device_ids: Sequence[str]) -> None:
        """Note an answered Allocate."""
        self.ledger.record(resource, device_ids, self._version(), monotonic())

    async def holders(self) -> tuple[Holder, ...]:
        """Return everyone who holds a device, or may; raises HoldersUnknown."""
        self._looks += 1
        look, kubelet = self._looks, _version(self._socket)
        try:
            listed, pods = await self._pod_resources.listed()
        except grpc.RpcError as error:
            raise HoldersUnknown(_SILENT) from error
        if _version(self._socket) != kubelet:
            # The answer may be of the one before: what the new one has forgotten would be shown.
            raise HoldersUnknown(_RESTARTED)
        # Read after the list, which makes the kubelet forget pods that have ended.
        version = self._version()
        recorded = self._recorded(version)
        known = joined(listed, recorded, self._names)
        if look <= self._outdated:
            return (*known, *self._before, *self.ledger.pending(known, version, monotonic()))
        self._outdated = look
        self._names = {
            **{holder.pod_uid: holder.pod for holder in known if holder.pod and holder.pod_uid}
        }
        lost = self._forgotten(kubelet, known, pods)
        self._known, self._pods, self._last = known, pods, (*known, *lost)
        self._has_pods = self._own_pod in pods
        return (*self._last, *self.ledger.pending(known, version, monotonic()))

    async def of_pods(self) -> tuple[Holder, ...]:
        """Return the holders that are pods of the node, by name; raises HoldersUnknown.

        The kubelet's checkpoint keeps a pod that has ended until the kubelet writes it again, at
        its next allocation.
        """
        held = await self.holders()
        pods = self._pods if self._has_pods else None
        return tuple(
            holder for holder in held if holder.pod and (pods is None or holder.pod in pods)
        )

    async def containers(self) -> tuple[Holder, ...]:
        """Return what the kubelet's list or its checkpoint shows now; raises HoldersUnknown.

        Each may lack what the other has. What a container is about to start with is in the
        checkpoint: it is written before.
        """
        problems: list[str] = []
        listed: tuple[Holder, ...] = ()
        recorded: tuple[Holder, ...] = ()
        try:
            listed = await self._pod_resources.holders()
        except grpc.RpcError:
            problems.append(_SILENT)
        try:
            recorded = self._read()
        except HoldersUnknown as problem:
            problems.append(str(problem))
        if len(problems) == 2:
            raise HoldersUnknown("; ".join(problems))
        return joined(listed, recorded, {})

    def without_limiter(self) -> frozenset[tuple[str, str, str]]:
        """Return who was allocated devices without the limiter: (pod UID, container, resource).

        Who is not in the checkpoint, or without an answer that can be read, is not among them.
        """
        try:
            answers = allocate_answers(read_regular_file(self._checkpoint))
        except (OSError, UnreadableCheckpoint):
            return frozenset()
        return frozenset(key for key, answer in answers.items() if not _may_have_limiter(answer))

    def mounted(self, path: str) -> Mapping[tuple[str, str, str], str]:
        """Return what of the host is mounted there: (pod UID, container, resource) → its path.

        Who is not in the checkpoint, or without an answer that can be read, is not among them.
        """
        mounted = {}
        with suppress(OSError, UnreadableCheckpoint, DecodeError):
            for key, answer in allocate_answers(read_regular_file(self._checkpoint)).items():
                for mount in api.ContainerAllocateResponse.FromString(answer).mounts:
                    if mount.container_path == path:
                        mounted[key] = mount.host_path
        return mounted

    def device_nodes(self) -> Mapping[tuple[str, str, str], frozenset[str]]:
        """Return the host's device nodes that containers start with, by how they were allocated.

        (pod UID, container, resource) → paths; raises HoldersUnknown.
        """
        try:
            answers = allocate_answers(read_regular_file(self._checkpoint))
            decoded = {
                key: api.ContainerAllocateResponse.FromString(answer)
                for key, answer in answers.items()
            }
        except (OSError, UnreadableCheckpoint, DecodeError) as error:
            raise HoldersUnknown(str(error)) from error
        return {
            key: frozenset(device.host_path for device in answer.devices)
            for key, answer in decoded.items()
        }

    def limiters(self) -> frozenset[str] | None:
        """Return the versions of the limiter that containers may start with, None if unknown.

        A container is made again of the answer to its Allocate, for as long as its pod lives.
        """
        try:
            answers = allocate_answers(read_regular_file(self._checkpoint))
            decoded = map(api.ContainerAllocateResponse.FromString, answers.values())
            return frozenset(
                version for annotations in decoded for version in _limiters(annotations)
            )
        except (OSError, UnreadableCheckpoint, DecodeError):
            return None

    def _forgotten(
        self, kubelet: Version, known: tuple[Holder, ...], pods: frozenset[str]
    ) -> tuple[Holder, ...]:
        """Return whom the kubelet before showed, and this one has forgotten."""
        if kubelet != self._kubelet:
            self._kubelet, self._ready_since, self._before = kubelet, None, self._last
        if self._own_pod not in pods:
            # It has not heard of its pods. Static ones, which come from files, it lists before.
            self._ready_since = None
        elif self._ready_since is None:
            self._ready_since = monotonic()
        self._before = forgotten(self._before, known, pods, self._is_settled)
        return self._before

    def _recorded(self, version: Version) -> tuple[Holder, ...]:
        """Return what the checkpoint records, read again only if it is another."""
        if version == self._initial_version:
            # What the agent before us allocated last may not be in it. Our first list brings it.
            raise HoldersUnknown(_UNWRITTEN)
        self._initial_version = _NO_VERSION
        if version is None or version != self._parsed[0]:
            self._parsed = (version, self._read())
        return self._parsed[1]

    def _read(self) -> tuple[Holder, ...]:
        try:
            return recorded_holders(read_regular_file(self._checkpoint))
        except OSError as error:
            raise HoldersUnknown(f"the kubelet's checkpoint cannot be read: {error}") from error
        except UnreadableCheckpoint as problem:
            raise HoldersUnknown(str(problem)) from problem

    def _version(self) -> Version:
        return _version(self._checkpoint)

    async def allocatable(self) -> frozenset[str]:
        """Return the IDs of all devices the kubelet would allocate; raises HoldersUnknown."""
        try:
            return await self._pod_resources.allocatable()
        except grpc.RpcError as error:
            raise HoldersUnknown(_SILENT) from error


def _limiters(answer: api.ContainerAllocateResponse) -> Iterator[str]:
    names = (device.name for device in answer.cdi_devices)
    paths = (mount.host_path for mount in answer.mounts)
    return filter(None, (limited_version(name) for name in (*names, *paths)))


def _may_have_limiter(answer: bytes) -> bool:
    try:
        mounts = api.ContainerAllocateResponse.FromString(answer).mounts
    except DecodeError:
        return True
    return any(mount.container_path == LIMITS for mount in mounts)


def _version(path: Path) -> Version:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns
