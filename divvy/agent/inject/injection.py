"""``Injection``: devices for this node's containers, by CDI names or by Allocate's answer."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from divvy.agent.driver_root import driver_program
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.inject.cdi import cdi_spec, keep_described, spec_bytes, write_spec
from divvy.agent.inject.cdi_support import cdi_is_on
from divvy.agent.inject.claim_cdi import ClaimEdits
from divvy.agent.inject.container_edits import (
    ContainerEdits,
    Mount,
    common_edits,
    device_edits,
    limited_edits,
    without_cdi,
    without_hook,
)
from divvy.agent.inject.driver_files import find_driver_files
from divvy.agent.inject.hook import (
    Hook,
    hook_call,
    install_hook,
    limiting_call,
    remove_older,
)
from divvy.agent.inject.installed_files import all_there
from divvy.agent.inject.limiter import Limiter, install_limiter, limiters
from divvy.agent.inject.node_capabilities import node_capabilities
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.plugin.allocation import ContainerAllocation, Refused
from divvy.agent.settings import Settings
from divvy.model.api_names import (
    CDI_FILE,
    CDI_KIND,
    DRIVER_LIMITED_FILE,
    DRIVER_LIMITED_KIND,
    limited_cdi_file,
    limited_cdi_kind,
)
from divvy.model.enforcement import NodeCapabilities, driver_limits_problem
from divvy.model.sharing import DeviceShare

_log = logging.getLogger(__name__)


class Injection:
    """Keeps the CDI specification up to date, and the same edits at hand for Allocate.

    ``problem`` says why containers get no hook, "" if they do. ``described`` are the
    UUIDs of the specification that was last written: no other device can be given.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hook: Hook | None = None
        self._limiter: Limiter | None = None
        self._common = ContainerEdits()
        self._limited: ContainerEdits | None = None  # until the specification has them
        self._limited_kind = ""
        self._devices: dict[str, ContainerEdits] = {}
        self._claims: ClaimEdits | None = None
        self._limiter_problem = "the limiter is not installed yet"
        self._undescribed = "the driver's files have not been described yet"
        self._driver_limits_problem = self._undescribed
        self.share_folder = ShareFolder(settings.share_folder)
        self.by_cdi = False
        self.problem = ""

    @property
    def installed(self) -> bool:
        """Return whether hook and limiter are on the host."""
        return self._has_hook and self._has_limiter

    def install(self) -> bool:
        """Install and try what is not installed yet; return whether anything is otherwise now.

        Takes up to 20 s, for a thread of its own.
        """
        before = self._installation
        if not self._has_hook:
            self._install_hook()
        if not self._has_limiter:
            self._install_limiter()
        return self._installation != before

    @property
    def _installation(self) -> tuple[object, ...]:
        return self._hook, self._limiter, self.problem, self._limiter_problem

    @property
    def _has_hook(self) -> bool:
        return self._hook is not None and all_there(self._hook.program, self._hook.ldconfig)

    @property
    def _has_limiter(self) -> bool:
        return self._limiter is not None and all_there(*self._limiter.libraries)

    @property
    def limiter_problem(self) -> str:
        """Return why no container can be given a share with a limit, "" if it can."""
        return self._limiter_problem if self._limited is None else ""

    @property
    def driver_limits_problem(self) -> str:
        """Return why no container can be given a share that the driver limits, "" if it can."""
        return self._driver_limits_problem

    @property
    def described(self) -> frozenset[str]:
        """Return the UUIDs of the devices that a container can be given now."""
        return frozenset(self._devices)

    def capabilities(self, driver: str, runtime: str) -> NodeCapabilities:
        """Return what this node can limit the memory of containers with."""
        settings = self._settings
        has_smi = driver_program(settings.driver_root, "nvidia-smi") is not None
        hook = self._hook is not None and has_smi and cdi_is_on(runtime, settings.containerd_folder)
        return node_capabilities(driver, settings.cgroup_folder, hook=hook)

    def renew(self, snapshot: Snapshot, runtime: str) -> None:
        """Describe the devices of a snapshot for a container runtime ("containerd://2.1.0").

        Raises InjectionProblem; of what was described before, that which is still so stays valid.
        """
        settings = self._settings
        devices = self.device_edits(snapshot)
        written: set[str] = set()
        try:
            self._describe(snapshot, devices, runtime, written)
        except InjectionProblem:
            self._devices = {
                uuid: edits for uuid, edits in self._devices.items() if devices.get(uuid) == edits
            }
            raise
        finally:
            keep_described(settings.cdi_folder, devices, written)

    def withdraw(self, reason: str) -> None:
        """Describe nothing: no driver answers, and its GPUs may have other nodes when one does.

        Raises InjectionProblem.
        """
        self._devices, self._claims = {}, None
        self._undescribed = reason
        keep_described(self._settings.cdi_folder, {})

    def _describe(
        self,
        snapshot: Snapshot,
        devices: dict[str, ContainerEdits],
        runtime: str,
        written: set[str],
    ) -> None:
        settings, hook, installed = self._settings, self._hook, self._limiter
        folder = settings.cdi_folder
        files = find_driver_files(settings.driver_root, snapshot.driver_version)
        if not files.libraries:
            raise InjectionProblem(f"no library of driver {snapshot.driver_version} is there")
        common = common_edits(files, settings.host_driver_root)
        bare = without_hook(common, files.library_folder, os.uname().machine)
        call = None if hook is None else hook_call(hook, snapshot, files)
        hooks = () if call is None else (call,)
        whole = bare if call is None else common
        spec = cdi_spec(whole, devices, hooks)
        behind: dict[str, ContainerEdits] = {}
        places: dict[str, Path] = {}
        for limiter in limiters(settings.state_folder):
            edits = limited_edits(whole, PurePosixPath(limiter.folder))
            behind[limiter.version], places[limiter.version] = edits, limiter.folder
            limited = cdi_spec(edits, devices, hooks, limited_cdi_kind(limiter.version))
            file = limited_cdi_file(limiter.version)
            write_spec(folder, spec_bytes(limited), file)
            written.add(file)
        limits = driver_limits_problem(self.capabilities(snapshot.driver_version, runtime))
        # If the writing fails, or the hook has only just come, no container is given it.
        self._driver_limits_problem = limits or "its CDI specification is not written"
        if hook is not None:
            # Also where the driver has no limits: a boot empties the folder of specifications, and
            # a container that was given this one before it fails by the hook, which says why.
            root, shares = settings.host_driver_root, settings.share_folder / "shares"
            limiting = limiting_call(hook, files, root, shares, settings.cgroup_folder)
            by_driver = cdi_spec(whole, devices, (limiting, *hooks), DRIVER_LIMITED_KIND)
            write_spec(folder, spec_bytes(by_driver), DRIVER_LIMITED_FILE)
            written.add(DRIVER_LIMITED_FILE)
            self._driver_limits_problem = limits
        if installed is not None:
            self._limited_kind = limited_cdi_kind(installed.version)
            self._limited = limited_edits(bare, PurePosixPath(installed.folder))
        if write_spec(folder, spec_bytes(spec)) and hook is not None:
            remove_older(settings.state_folder, hook)
        written.add(CDI_FILE)
        self._common, self._devices = bare, devices
        self._claims = ClaimEdits(whole, behind, devices, call, places)
        by_cdi = cdi_is_on(runtime, settings.containerd_folder)
        if by_cdi != self.by_cdi:
            _log.info("devices are given %s", "by CDI names" if by_cdi else "without CDI")
        self.by_cdi = by_cdi

    @property
    def limiter(self) -> str:
        """Return the version of this image's limiter, "" if it is not installed yet."""
        return "" if self._limiter is None else self._limiter.version

    def remove_limiters(self, used: frozenset[str]) -> None:
        """Remove the limiters of earlier images but those that containers may start with.

        First what describes one: whose folder is there is described again.
        """
        for limiter in self.earlier_limiters:
            if limiter.version not in used:
                _log.info("no container uses limiter %s any longer", limiter.version)
                file = self._settings.cdi_folder / limited_cdi_file(limiter.version)
                with suppress(OSError):
                    file.unlink(missing_ok=True)
                    shutil.rmtree(limiter.folder)

    @property
    def earlier_limiters(self) -> tuple[Limiter, ...]:
        """Return the limiters of earlier images, none before this image's is installed."""
        if self._limiter is None:
            return ()
        installed = limiters(self._settings.state_folder)
        return tuple(limiter for limiter in installed if limiter != self._limiter)

    def claim_edits(self, snapshot: Snapshot) -> ClaimEdits:
        """Return what containers of claims get of a snapshot; raises InjectionProblem.

        It may be newer than what was described last.
        """
        if self._claims is None:
            raise InjectionProblem(self._undescribed)
        return replace(self._claims, devices=self.device_edits(snapshot))

    def device_edits(self, snapshot: Snapshot) -> dict[str, ContainerEdits]:
        """Return UUID → the device nodes of each GPU and MIG device of a snapshot."""
        return device_edits(snapshot, self._settings.host_driver_root)

    def gpu_nodes(self) -> Mapping[str, frozenset[str]]:
        """Return UUID → the host's device nodes of each device that is described."""
        return {
            uuid: frozenset(node.host for node in edits.nodes)
            for uuid, edits in self._devices.items()
        }

    def described_as(self, snapshot: Snapshot) -> object:
        """Return what containers of claims are given of a snapshot, to be compared.

        While nothing could be written yet, those that an agent before this one described have it.
        """
        if self._claims is None:
            return self.device_edits(snapshot)
        return self.by_cdi, self.claim_edits(snapshot)

    def driver_limited_allocation(
        self, device_ids: Sequence[str], shares: Sequence[DeviceShare]
    ) -> ContainerAllocation:
        """Return what Allocate answers for replicas that the driver itself limits; raises Refused.

        Always by CDI: the hook that has the limit set is part of that specification.
        """
        if self._driver_limits_problem:
            raise Refused(self._driver_limits_problem)
        uuids = [share.uuid for share in shares]
        self._require_described(uuids)
        names = tuple(f"{DRIVER_LIMITED_KIND}={uuid}" for uuid in uuids)
        return ContainerAllocation(names, ContainerEdits(mounts=self._laid(device_ids, shares)))

    def limited_allocation(
        self, device_ids: Sequence[str], shares: Sequence[DeviceShare]
    ) -> ContainerAllocation:
        """Return what Allocate answers for replicas with a limit; raises Refused.

        Without the limiter a share would not be limited, so it is refused.
        """
        if self._limited is None:
            raise Refused(self._limiter_problem)
        uuids = [share.uuid for share in shares]
        self._require_described(uuids)
        files = self._laid(device_ids, shares)
        if self.by_cdi:
            names = tuple(f"{self._limited_kind}={uuid}" for uuid in uuids)
            return ContainerAllocation(names, ContainerEdits(mounts=files))
        edits = without_cdi(self._limited, (self._devices[uuid] for uuid in uuids))
        return ContainerAllocation((), replace(edits, mounts=(*edits.mounts, *files)))

    def _laid(self, device_ids: Sequence[str], shares: Sequence[DeviceShare]) -> tuple[Mount, ...]:
        try:
            return self.share_folder.lay(device_ids, shares)
        except InjectionProblem as problem:
            raise Refused(str(problem)) from problem

    def _require_described(self, uuids: Sequence[str]) -> None:
        missing = [uuid for uuid in uuids if uuid not in self._devices]
        if missing:
            raise Refused(f"{missing[0]} has no device node on this node now")

    def allocation(self, uuids: Sequence[str]) -> ContainerAllocation:
        """Return what Allocate answers for these GPUs and MIG devices; raises Refused."""
        self._require_described(uuids)
        if self.by_cdi:
            return ContainerAllocation(tuple(f"{CDI_KIND}={uuid}" for uuid in uuids))
        devices = (self._devices[uuid] for uuid in uuids)
        return ContainerAllocation((), without_cdi(self._common, devices))

    def _install_hook(self) -> None:
        hook, settings = None, self._settings
        try:
            hook = install_hook(
                settings.hook_program, settings.state_folder, settings.ldconfig_program
            )
            self.problem = ""
        except InjectionProblem as problem:
            text = (
                f"{problem}; containers start without an updated ld.so cache and without the CUDA "
                "version check"
            )
            if text != self.problem:
                _log.error("%s", text)
            self.problem = text
        # At once: a specification that is written meanwhile goes on with the one there was.
        self._hook = hook

    def _install_limiter(self) -> None:
        folder = self._settings.limiter_folder
        limiter = None
        try:
            limiter = install_limiter(folder, self._settings.state_folder)
        except InjectionProblem as problem:
            self._limiter_problem = str(problem)
        self._limiter = limiter
