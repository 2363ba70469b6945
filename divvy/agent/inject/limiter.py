"""The limiter's libraries on the host, and the files of each share that go beside them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from divvy.agent.inject.container_edits import Mount, limits_mount, share_mounts
from divvy.agent.inject.installed_files import install_files
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.inject.share import share_name
from divvy.agent.inject.share_usage import create_account
from divvy.agent.inject.time_share_page import create_page
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file
from divvy.model.sharing import NO_PAGE, DeviceShare, limits_text

LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")
_KIND = "limiter"
_MODE = 0o444


@dataclass(frozen=True)
class Limiter:
    """The installed libraries: a folder that means the same to this process and to the host."""

    folder: Path

    @property
    def version(self) -> str:
        """Return what tells it from the limiters of other images."""
        return self.folder.name.removeprefix(f"{_KIND}-")

    @property
    def libraries(self) -> tuple[Path, ...]:
        """Return the files."""
        return tuple(self.folder / name for name in LIBRARIES)


def install_limiter(source: Path, folder: Path) -> Limiter:
    """Copy the image's libraries below ``folder``; raises InjectionProblem.

    Those of earlier images stay as long as a container may start with them: the files of a share
    are for the limiter that was installed when they were written.
    """
    try:
        contents = {name: (source / name).read_bytes() for name in LIBRARIES}
        return Limiter(install_files(folder, _KIND, contents))
    except OSError as error:
        raise InjectionProblem(f"the limiter is not installed: {error}") from error


def limiters(folder: Path) -> tuple[Limiter, ...]:
    """Return those of this image and of earlier ones, as they are installed below ``folder``."""
    return tuple(Limiter(place) for place in sorted(folder.glob(f"{_KIND}-*")))


def laid_share(
    folder: Path, device_ids: Sequence[str], devices: Sequence[DeviceShare]
) -> tuple[Mount, ...] | None:
    """Return the share's mounts if its files already exist and match, else None.

    Its containers may be at work: what they have open stays theirs.
    """
    share, pages = folder / "shares" / share_name(device_ids), folder / "pages"
    files = [share / "account"]
    files += [pages / device.uuid / device.page for device in devices if device.page != NO_PAGE]
    try:
        same = read_regular_file(share / "limits") == limits_text(devices).encode()
    except OSError:
        return None
    if not same or not all(file.is_file() for file in files):
        return None
    return share_mounts(share, pages, devices)


def remove_share(folder: Path, device_ids: Sequence[str]) -> None:
    """Remove the files of a share that is not given out again."""
    name = share_name(device_ids)
    shutil.rmtree(folder / "shares" / name, ignore_errors=True)
    for page in (folder / "pages").glob(f"*/{name}-*"):
        page.unlink(missing_ok=True)


def has_share(folder: Path, device_ids: Sequence[str]) -> bool:
    """Return whether there are files of a share."""
    return (folder / "shares" / share_name(device_ids) / "limits").is_file()


def write_share(
    folder: Path, device_ids: Sequence[str], devices: Sequence[DeviceShare]
) -> tuple[Mount, ...]:
    """Write limits, account and pages of what a container is allocated, and return its mounts.

    Raises OSError. An account is also written where the driver itself limits the container, which
    then does not see it: the agent charges it what NVML shows. And containers that the limiter
    kept before a boot brought another driver start again with their account mounted.
    """
    name = share_name(device_ids)
    share, pages = folder / "shares" / name, folder / "pages"
    for parent in (share.parent, pages):
        parent.mkdir(parents=True, exist_ok=True)
        # A tenant that is root can make a program of root's of its files.
        parent.chmod(0o700)
    share.mkdir(exist_ok=True)
    replace_file(
        share / "devices", "".join(f"{device_id}\n" for device_id in device_ids).encode(), _MODE
    )
    create_account(share / "account")
    for device in devices:
        if device.page != NO_PAGE:
            (pages / device.uuid).mkdir(parents=True, exist_ok=True)
            create_page(pages / device.uuid / device.page, device.sharing.weight)
    # Last: what has it is whole.
    replace_file(share / "limits", limits_text(devices).encode(), _MODE)
    if any(device.sharing.by_driver for device in devices):
        return limits_mount(share)
    return share_mounts(share, pages, devices)
