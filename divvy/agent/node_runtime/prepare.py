"""Bring one node's runtime to CDI: validate first, roll back if it does not come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from divvy.agent.node_runtime import containerd, crio
from divvy.agent.node_runtime.host import Host, HostFailed

_log = logging.getLogger(__name__)
ROOT_FILE = "/etc/containerd/config.toml"
_TRIAL = "/run/divvy-containerd-trial"


def prepare_containerd(host: Host, *, change: bool = True) -> tuple[str, ...]:
    """Switch CDI on where it is off; return what was missing.

    Raises CannotConfigure or HostFailed, with the node as it was before. With
    ``change`` False it only looks.
    """
    foreign = host.foreign()
    if foreign is not None:
        raise containerd.CannotConfigure(
            f"this node is {foreign}'s, which writes containerd's configuration itself: switch CDI "
            "on there, and set runtime.configure to false"
        )
    program = host.containerd_program()
    dump = host.run(program, "config", "dump")
    warning = containerd.exposed(dump)
    if warning is not None:
        _log.warning("%s", warning)
    lacks = containerd.missing(dump)
    if not lacks or not change:
        return lacks
    root_text = host.read(ROOT_FILE)
    files = containerd.files_for(root_text)
    _validate(host, program, files, root_text)
    changes = {containerd.DROP_IN: files.drop_in}
    if files.root is not None:
        changes[ROOT_FILE] = files.root
    _change(
        host,
        changes,
        host.restart_containerd,
        lambda: containerd.missing(host.run(program, "config", "dump")),
    )
    return lacks


def prepare_crio(host: Host, *, change: bool = True) -> tuple[str, ...]:
    """Do the same for CRI-O, which has CDI on unless it was switched off."""

    def look() -> tuple[str, ...]:
        return crio.missing(host.run("crio", "config"))

    lacks = look()
    if lacks and change:
        restart = ("systemctl", "restart", "crio")
        _change(host, {crio.DROP_IN: crio.drop_in()}, lambda: host.run(*restart), look)
    return lacks


def _change(
    host: Host,
    files: Mapping[str, str],
    restart: Callable[[], object],
    look: Callable[[], tuple[str, ...]],
) -> None:
    """Put files in place and restart the runtime; where it does not come back, undo both."""
    before = {path: host.read(path) for path in files}
    try:
        for path, text in files.items():
            host.write(path, text)
        restart()
        _require(look(), "after the change")
    except HostFailed as failure:
        _log.error("rolling back: %s", failure)
        for path, old in before.items():
            host.write(path, old)
        restart()
        raise


def _validate(host: Host, program: str, files: containerd.Files, root_text: str | None) -> None:
    """Let the host's own containerd read the new files before they are put in place."""
    trial_root, trial_drop_in = f"{_TRIAL}/config.toml", f"{_TRIAL}/conf.d/90-divvy.toml"
    text = files.root if files.root is not None else root_text or ""
    folder = str(PurePosixPath(containerd.DROP_IN).parent)
    try:
        host.write(trial_root, text.replace(folder, f"{_TRIAL}/conf.d"))
        host.write(trial_drop_in, files.drop_in)
        dump = host.run(program, "--config", trial_root, "config", "dump")
        _require(containerd.missing(dump), "containerd reads the new files otherwise")
    finally:
        host.run("rm", "-rf", _TRIAL)


def _require(lacks: tuple[str, ...], when: str) -> None:
    if lacks:
        raise HostFailed(f"{when}: {', '.join(lacks)}")
