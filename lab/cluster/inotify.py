"""The kernel's limit that a lab meets first: kubelets and containerds watch files.

A node of the lab takes about ten instances; a machine's usual 128 are for a person's desktop. Past
them a containerd that is restarted comes up without its CRI service.
"""

from __future__ import annotations

from pathlib import Path

_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
_ENOUGH = 1024


def ensure_instances(limit: Path = _LIMIT) -> str | None:
    """Raise the limit where it is low; return what was changed, None if nothing was."""
    allowed = int(limit.read_text())
    if allowed >= _ENOUGH:
        return None
    try:
        limit.write_text(f"{_ENOUGH}\n")
    except OSError:
        return None  # not ours to change: a shortage is told when it comes
    return f"fs.inotify.max_user_instances raised from {allowed} to {_ENOUGH}"


def shortage(proc: Path = Path("/proc"), limit: Path = _LIMIT) -> str | None:
    """Return a message if root's inotify instances are used up and what to do, else None."""
    allowed = int(limit.read_text())
    used = sum(_instances(folder) for folder in proc.glob("[0-9]*/fd"))
    # A process that was refused has given up: a few may be free again.
    if used < allowed * 0.9:
        return None
    return (
        f"{used} of {allowed} inotify instances are in use on this machine: "
        f"sysctl -w fs.inotify.max_user_instances={max(_ENOUGH, 4 * allowed)}"
    )


def _instances(folder: Path) -> int:
    try:
        return sum(str(link.readlink()) == "anon_inode:inotify" for link in folder.iterdir())
    except OSError:
        return 0  # the process ended meanwhile
