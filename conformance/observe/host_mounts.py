"""The mounts in a container that are neither Kubernetes' nor the kernel's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Every container has these, with a device or without: the kernel's file systems, and the files
# that the kubelet makes for it. What else is mounted came with the device. Device nodes are
# told by the devices' checks.
SCRIPT = r"""
while read -r _ _ _ source place options _; do
  case "$place" in
    / | /proc | /proc/* | /sys | /sys/* | /dev | /dev/pts | /dev/mqueue) continue ;;
    /dev/shm) [ "$source" = / ] && continue ;; # whole: no folder of a file system of the host's
    /dev/termination-log | /etc/hosts | /etc/hostname | /etc/resolv.conf) continue ;;
    /run/secrets/* | /var/run/secrets/*) continue ;;
  esac
  [ -c "$place" ] && continue
  target=$place
  [ -d "$place" ] && target=$place/.divvy-conformance
  tried=refused
  if (: >> "$target") 2> /dev/null; then
    tried=written
    [ -d "$place" ] && rm -f "$target"
  fi
  echo "mount ${options%%,*} $tried $source $place"
done < /proc/self/mountinfo
"""
_SHARE, _MPS_PIPES = "/usr/lib/divvy/share", "/usr/lib/divvy/mps"
_PIPES_OF_A_GPU = re.compile(r"\S*/mps/GPU-[^/\s]+/pipe")
_LINE = re.compile(r"mount (ro|rw) (refused|written) (\S+) (.+)")


@dataclass(frozen=True)
class HostMount:
    """A mount from the host, and whether the container can write there.

    ``source`` is its path in the host's file system, as far as the kernel tells a container.
    """

    source: str
    place: str
    read_only: bool
    written: bool

    @property
    def writable(self) -> bool:
        """Return whether its flags or a try say so."""
        return self.written or not self.read_only


def host_mounts(log: str) -> list[HostMount]:
    """Read what the script printed."""
    return [
        HostMount(match[3], match[4], match[1] == "ro", match[2] == "written")
        for match in map(_LINE.fullmatch, log.splitlines())
        if match is not None
    ]


def of_mps(mounts: Sequence[HostMount]) -> list[HostMount]:
    """Return what a client of MPS writes by design: the sockets of one GPU's daemon."""
    pipes = [mount for mount in mounts if mount.place == _MPS_PIPES]
    return pipes if len(pipes) == 1 and _PIPES_OF_A_GPU.fullmatch(pipes[0].source) else []


def of_one_share(mounts: Sequence[HostMount]) -> list[HostMount]:
    """Return what a container of a limited share writes by design: its account and its pages.

    They are of the share whose limits the container has; those of another are not its own.
    """
    limits = next((mount.source for mount in mounts if mount.place == f"{_SHARE}/limits"), "")
    share = re.search(r"/shares/([0-9a-f]{16})/limits$", limits)
    if share is None:
        return []
    account = re.compile(rf"\S*/shares/{share[1]}/account {_SHARE}/account")
    page = re.compile(rf"\S*/pages/[^/\s]+/({share[1]}-\d+) {_SHARE}/\1")
    named = {mount: f"{mount.source} {mount.place}" for mount in mounts}
    return [
        place for place, text in named.items() if account.fullmatch(text) or page.fullmatch(text)
    ]
