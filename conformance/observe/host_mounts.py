"""What of its host a container sees: mounts that are neither Kubernetes' nor the kernel's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Every container has these, with a device or without: the kernel's file systems, and the files
# that the kubelet makes for it. What else is mounted came with the device. Device nodes are
# told by the devices' checks.
SCRIPT = r"""
while read -r _ _ _ _ place options _; do
  case "$place" in
    / | /proc | /proc/* | /sys | /sys/* | /dev | /dev/pts | /dev/shm | /dev/mqueue) continue ;;
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
  echo "mount ${options%%,*} $tried $place"
done < /proc/self/mountinfo
"""
# What a container of a limited share writes by design: its account, and its page on each GPU.
_OF_ITS_SHARE = re.compile(r"/usr/lib/divvy/share/(account|[0-9a-f]{16}-\d+)")
_LINE = re.compile(r"mount (ro|rw) (refused|written) (.+)")


@dataclass(frozen=True)
class HostMount:
    """A mount from the host, and whether the container can write there."""

    place: str
    read_only: bool
    written: bool

    @property
    def writable(self) -> bool:
        """Return whether its flags or a try say so."""
        return self.written or not self.read_only

    @property
    def of_its_share(self) -> bool:
        """Return whether it is a file in which a limited share's container does its accounts."""
        return _OF_ITS_SHARE.fullmatch(self.place) is not None


def host_mounts(log: str) -> list[HostMount]:
    """Read what the script printed."""
    return [
        HostMount(match[3], match[1] == "ro", match[2] == "written")
        for match in map(_LINE.fullmatch, log.splitlines())
        if match is not None
    ]
