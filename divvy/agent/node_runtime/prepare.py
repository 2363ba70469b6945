"""Bring one node's runtime to CDI: on trial first, rolled back if it does not come back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from divvy.agent.host_path import HostFailed
from divvy.agent.node_runtime import containerd, crio
from divvy.agent.node_runtime.containerd import CannotConfigure
from divvy.agent.node_runtime.host import Host, Runtime
from divvy.agent.node_runtime.host_files import Attributes, EditConflict, HostFile

_log = logging.getLogger(__name__)
_TRIAL = "/run/divvy-containerd-trial"
# There while the files are new and the runtime has not read them; /run ends with the boot.
_UNFINISHED = "/run/divvy-node-runtime-unfinished"
_CUT_SHORT = ("the restart after the change was cut short",)
# A trial, the dump after the change, two restarts: every step of them has a time-out.
MAX_CHANGE_SECONDS = 160.0


class _NotRestarted(HostFailed):
    """The runtime did not come back after the rollback either."""


@dataclass(frozen=True)
class Change:
    """One file to be replaced: what it was (None: absent), what it is to be."""

    path: str
    before: HostFile | None
    content: str
    attributes: Attributes


def prepare_containerd(
    host: Host, *, change: bool = True, require_turn: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Switch CDI on where it is off; return what was missing.

    Raises CannotConfigure or HostFailed, with the node as it was before. With
    ``change`` False it only looks. ``require_turn`` raises where it is another node's
    Lease by now; it is asked right before the first change.
    """
    foreign = host.foreign()
    if foreign is not None:
        raise CannotConfigure(
            f"this node is {foreign}'s, which writes containerd's configuration itself: switch CDI "
            "on there, and set runtime.configure to false"
        )
    runtime = host.runtime(containerd.UNIT, containerd.SOCKET)
    elsewhere = containerd.started_elsewhere(runtime.command)
    if elsewhere is not None:
        raise CannotConfigure(
            f"containerd was started with {elsewhere}; only {containerd.ROOT_FILE} and "
            f"{containerd.SOCKET} are known here: set runtime.configure to false"
        )

    def dump() -> str:
        # Without a root file, containerd before 2.1 has no dump of what it starts with.
        there = host.files.read(containerd.ROOT_FILE) is not None
        return host.run(runtime.program, "config", "dump" if there else "default")

    before = dump()
    warning = containerd.exposed(before)
    if warning is not None:
        _log.warning("%s", warning)
    lacks = containerd.missing(before)
    if not lacks:
        return _finish(host, runtime, require_turn, change=change)
    _require_restart(runtime)
    if not change:
        return lacks
    root = host.files.read(containerd.ROOT_FILE)
    files = _choose(host, runtime, root, before)
    attributes = Attributes() if root is None else root.attributes
    old = host.files.read(containerd.DROP_IN)
    changes = [
        Change(
            containerd.DROP_IN, old, files.drop_in, attributes if old is None else old.attributes
        )
    ]
    if files.root is not None:
        changes.append(Change(containerd.ROOT_FILE, root, files.root, attributes))
    require_turn()

    def compare() -> None:
        try:
            _compare(before, dump(), "after the change")
        except HostFailed as failure:
            raise HostFailed(f"{failure}{_read_later(host, files.trial)}") from failure

    _apply(host, runtime, changes, compare)
    return lacks


def _read_later(host: Host, trial: str) -> str:
    """Describe the files that containerd reads after ours, whose tables may replace it."""
    read = []
    for pattern in containerd.imports_of(trial):
        paths = sorted(host.files.root.glob(pattern.lstrip("/")))
        read += ["/" + str(path.relative_to(host.files.root)) for path in paths]
    later = read[read.index(containerd.DROP_IN) + 1 :] if containerd.DROP_IN in read else []
    if not later:
        return ""
    return (
        f"; {', '.join(later[:3])} is read after {containerd.DROP_IN}, and before containerd 2.1 "
        "its tables replace those: set enable_cdi = true there, or give it a name before 90"
    )


def prepare_crio(
    host: Host, *, change: bool = True, require_turn: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Do the same for CRI-O, which has CDI on unless it was switched off."""
    runtime = host.runtime(crio.UNIT, crio.SOCKET)

    def look() -> tuple[str, ...]:
        return crio.missing(host.run(runtime.program, "config"))

    def require_all() -> None:
        lacks = look()
        if lacks:
            raise HostFailed(f"after the change: {', '.join(lacks)}")

    lacks = look()
    if not lacks:
        return _finish(host, runtime, require_turn, change=change)
    _require_restart(runtime)
    if change:
        old = host.files.read(crio.DROP_IN)
        attributes = Attributes() if old is None else old.attributes
        require_turn()
        ours = Change(crio.DROP_IN, old, crio.drop_in(), attributes)
        _apply(host, runtime, [ours], require_all)
    return lacks


def _finish(
    host: Host, runtime: Runtime, require_turn: Callable[[], None], *, change: bool
) -> tuple[str, ...]:
    """Make up for the restart where the process that changed the files was killed before it."""
    if not host.files.exists(_UNFINISHED):
        return ()
    _require_restart(runtime)
    if change:
        require_turn()
        _apply(host, runtime, [], lambda: None)
    return _CUT_SHORT


def _require_restart(runtime: Runtime) -> None:
    if not runtime.is_unit:
        raise CannotConfigure(
            f"{runtime.unit} is not a loaded systemd unit on this node: nothing is known to "
            f"restart {runtime.program}; switch CDI on by hand, and set runtime.configure to false"
        )


def _choose(host: Host, runtime: Runtime, root: HostFile | None, before: str) -> containerd.Files:
    """Return the first files with which the host's own containerd reads what it should."""
    last = HostFailed("no files were tried")
    for files in containerd.candidates(_text(root), before, f"{_TRIAL}/90-divvy.toml"):
        contents = {"config.toml": files.trial, "90-divvy.toml": files.drop_in}
        with host.files.scratch(_TRIAL, contents):
            try:
                trial = f"{_TRIAL}/config.toml"
                dump = host.run(runtime.program, "--config", trial, "config", "dump")
                _compare(before, dump, "containerd interprets the new files differently")
            except HostFailed as failure:
                last = failure
            else:
                return files
    raise last


def _text(file: HostFile | None) -> str | None:
    try:
        return None if file is None else file.content.decode()
    except UnicodeDecodeError as error:
        raise CannotConfigure(f"{containerd.ROOT_FILE} cannot be read: {error}") from error


def _compare(before: str, after: str, when: str) -> None:
    wrong = list(containerd.missing(after))
    wrong += [f"{key} would change" for key in containerd.other_differences(before, after)]
    if wrong:
        raise HostFailed(f"{when}: {', '.join(wrong[:5])}")


def _apply(
    host: Host, runtime: Runtime, changes: Sequence[Change], check: Callable[[], None]
) -> None:
    """Put files in place, check what the runtime makes of them, restart it; or undo it all."""
    mark = host.files.replace(_UNFINISHED, host.files.read(_UNFINISHED), b"", Attributes())
    try:
        _put_in_place(host, runtime, changes, check)
    except _NotRestarted:
        raise
    except (HostFailed, CannotConfigure):
        host.files.remove(_UNFINISHED, mark)
        raise
    # After any other end the mark stays: the files may be new, and the next start, which misses
    # nothing in them, must not take the runtime for one that has read them.
    host.files.remove(_UNFINISHED, mark)


def _put_in_place(
    host: Host, runtime: Runtime, changes: Sequence[Change], check: Callable[[], None]
) -> None:
    done: list[tuple[Change, HostFile]] = []
    restarted = False
    try:
        for change in changes:
            text = change.content.encode()
            done.append(
                (change, host.files.replace(change.path, change.before, text, change.attributes))
            )
        check()
        restarted = True
        host.restart(runtime)
    except (HostFailed, CannotConfigure) as failure:
        _log.error("rolling back: %s", failure)
        left = [
            problem
            for problem in map(lambda written: _undo(host, *written), reversed(done))
            if problem
        ]
        kind = HostFailed
        if restarted:
            try:
                host.restart(runtime)
            except HostFailed as again:
                left.append(str(again))
                kind = _NotRestarted
        if left:
            raise kind(f"{failure}; and rolling back: {'; '.join(left)}") from failure
        raise


def _undo(host: Host, change: Change, written: HostFile) -> str | None:
    """Put back what was there; say why it could not be, with what is there now left alone."""
    try:
        if change.before is None:
            host.files.remove(change.path, written)
        else:
            before = change.before
            host.files.replace(change.path, written, before.content, before.attributes)
    except EditConflict as edited:
        return f"{edited}: left unchanged"
    except HostFailed as failure:
        return str(failure)
    return None
