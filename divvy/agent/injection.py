"""How containers get their devices on this node: by CDI names, or by what Allocate answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from divvy.agent.allocation import CDI_KIND, Grant, Refused
from divvy.agent.cdi import cdi_spec, spec_bytes, write_spec
from divvy.agent.cdi_support import cdi_is_on
from divvy.agent.driver_files import find_driver_files
from divvy.agent.edits import Edits, common_edits, device_edits, without_cdi
from divvy.agent.hardware import Snapshot
from divvy.agent.hook import Hook, HookUnusable, hook_call, install_hook, remove_older
from divvy.agent.settings import Settings

_log = logging.getLogger(__name__)


class Injection:
    """Keeps the CDI specification up to date, and the same edits at hand for Allocate.

    ``problem`` says why containers get no hook, "" where they do.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hook: Hook | None = None
        self._common = Edits()
        self._devices: dict[str, Edits] = {}
        self._folder = ""
        self.by_cdi = False
        self.problem = ""
        try:
            self._hook = install_hook(settings.hook_program, settings.state_folder)
        except HookUnusable as problem:
            self.problem = f"{problem}; containers get no loader cache and no check of CUDA"
            _log.error("%s", self.problem)

    def renew(self, snapshot: Snapshot, runtime: str) -> None:
        """Describe the devices of a snapshot for a container runtime ("containerd://2.1.0")."""
        settings = self._settings
        files = find_driver_files(settings.driver_root, snapshot.driver_version)
        self._folder = files.library_folder
        self._common = common_edits(files, settings.host_driver_root)
        self._devices = device_edits(snapshot, settings.host_driver_root)
        call = None if self._hook is None else hook_call(self._hook, snapshot, files)
        content = spec_bytes(cdi_spec(self._common, self._devices, call))
        if write_spec(settings.cdi_folder, content) and self._hook is not None:
            remove_older(settings.state_folder, self._hook, content.decode())
        by_cdi = cdi_is_on(runtime, settings.containerd_folder)
        if by_cdi != self.by_cdi:
            _log.info("devices are given %s", "by CDI names" if by_cdi else "without CDI")
        self.by_cdi = by_cdi

    def grant(self, uuids: Sequence[str]) -> Grant:
        """Return what Allocate answers for these GPUs and MIG devices."""
        if self.by_cdi:
            return Grant(tuple(f"{CDI_KIND}={uuid}" for uuid in uuids))
        missing = [uuid for uuid in uuids if uuid not in self._devices]
        if missing:
            raise Refused(f"{missing[0]} has no device node on this node now")
        devices = (self._devices[uuid] for uuid in uuids)
        return Grant((), without_cdi(self._common, devices, self._folder))
