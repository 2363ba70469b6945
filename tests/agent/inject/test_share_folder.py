"""What a tenant writes beyond its share's files has no room, whatever it does and whenever."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from divvy.agent.inject.problem import InjectionProblem, NotWritten
from divvy.agent.inject.share import share_name
from divvy.agent.inject.share_folder import ShareFolder, room
from divvy.agent.inject.share_usage import SIZE, read_account
from divvy.agent.inject.tmpfs import Tmpfs
from divvy.model.sharing import DeviceShare, Sharing
from lab.fakes.agent import unmount
from tests.agent.devices import device_share
from tests.agent.inject.bundle import administrator

pytestmark = administrator
_libc = ctypes.CDLL(None, use_errno=True)
_KEEP_SIZE, _PUNCH = 1, 2
_MIB = 1 << 20
# Takes whatever room there is in a file, and does so forever.
_GREEDY = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
files = [os.open(path, os.O_RDWR) for path in sys.argv[1:]]
print("ready", flush=True)
while True:
    for file in files:
        libc.fallocate(file, 1, ctypes.c_long(0), ctypes.c_long(1 << 30))
        for pages in range(35, 60):
            libc.fallocate(file, 0, ctypes.c_long(pages * 4096), ctypes.c_long(4096))
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[ShareFolder]:
    """Give a node's folder of shares."""
    try:
        yield ShareFolder(tmp_path / "tenants")
    finally:
        unmount(tmp_path / "tenants")


def shared(number: int) -> tuple[list[str], list[DeviceShare]]:
    ids = [f"GPU-0::{number}"]
    return ids, [device_share("GPU-0", 1000, "share", 25, f"{share_name(ids)}-0")]


def files(node: ShareFolder, number: int) -> tuple[Path, Path]:
    """Return account and page of a share, where its container has them from."""
    mounts = {mount.path: mount.host for mount in node.laid(*shared(number)) or ()}
    _, (share,) = shared(number)
    folder = "/usr/lib/divvy/share"
    return Path(mounts[f"{folder}/account"]), Path(mounts[f"{folder}/{share.page}"])


def fallocate(path: Path, mode: int, start: int, size: int) -> int:
    """Return the error's number, 0 for success."""
    with path.open("r+b") as file:
        done = _libc.fallocate(file.fileno(), mode, ctypes.c_long(start), ctypes.c_long(size))
    return 0 if done == 0 else ctypes.get_errno()


def node_bytes(node: ShareFolder) -> int:
    """Return what the file system of tenants takes of the node's memory at most."""
    filesystem = os.statvfs(node.folder)
    return filesystem.f_blocks * filesystem.f_frsize


@pytest.mark.parametrize("which", [0, 1], ids=["account", "page"])
def test_refuses_a_tenant_room_beyond_its_files(node: ShareFolder, which: int) -> None:
    for number in range(3):
        node.lay(*shared(number))
    before = node_bytes(node)
    assert before < 3 * (SIZE + 5 * 4096)
    path = files(node, 0)[which]
    assert fallocate(path, _KEEP_SIZE, 0, 64 * _MIB) == errno.ENOSPC
    assert fallocate(path, 0, 0, 64 * _MIB) == errno.ENOSPC
    with path.open("r+b", buffering=0) as file:
        file.seek(SIZE + 4096)
        with pytest.raises(OSError, match="No space left"):
            file.write(bytes(4096))
    os.truncate(path, 1 << 40)  # has no blocks
    node.tidy()
    assert path.stat().st_size == (SIZE, 4096)[which]
    assert node_bytes(node) == before
    assert read_account(files(node, 1)[0]).slots == ()


@pytest.mark.parametrize("page", [4096, 65536])
def test_has_room_for_a_shares_files_in_pages_of_any_size(node: ShareFolder, page: int) -> None:
    """On a kernel with pages of 64 KiB, as for GH200s, a file of a line takes as much."""
    node.lay(*shared(0))
    sizes = [path.stat().st_size for path in node.folder.rglob("*") if path.is_file()]
    assert len(sizes) >= 3
    assert sum(-(-size // page) * page for size in sizes) <= room(1, page)


def test_gives_no_tenant_the_disk_that_another_releases(node: ShareFolder) -> None:
    for number in range(2):
        node.lay(*shared(number))
    before = node_bytes(node)
    with files(node, 0)[0].open("r+b") as theirs:
        os.truncate(theirs.fileno(), 0)
        assert fallocate(files(node, 1)[0], _KEEP_SIZE, SIZE + 4096, 16 * 4096) == 0
        node.tidy()
    assert node_bytes(node) <= before


def test_reclaims_file_attributes(node: ShareFolder) -> None:
    node.lay(*shared(0))
    account, page = files(node, 0)
    assert attributes(page) < 32
    node.tidy()
    assert os.listxattr(page) == []
    node.lay(*shared(1))
    assert account.stat().st_size == SIZE


def test_places_shares_where_each_file_has_a_label(node: ShareFolder) -> None:
    """SELinux gives it one; root in a container may give its files capabilities, which stay."""
    for number in range(60):
        node.lay(*shared(number))
        for path in node.folder.rglob("*"):
            os.setxattr(path, "trusted.label", b"x" * 100)
    node.tidy()
    assert attributes(files(node, 0)[0]) < 100


def attributes(path: Path) -> int:
    """Give a file as many attributes of 1 KB as it can have."""
    for number in range(1000):
        try:
            os.setxattr(path, f"user.{number}", b"x" * 1000)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return number
    return 1000


def test_places_shares_beside_tenants_that_take_all_space(node: ShareFolder) -> None:
    node.lay(*shared(0))
    with greedy(*files(node, 0)):
        for number in range(1, 30):
            node.lay(*shared(number))
            for path in files(node, number):
                assert read_account(files(node, number)[0]).slots == ()
                assert path.stat().st_blocks * 512 >= path.stat().st_size
        node.tidy()
        assert node_bytes(node) < 31 * (SIZE + 20 * 4096)
        for number in range(1, 30):
            node.remove(shared(number)[0])
        node.tidy()
    node.tidy()
    assert node_bytes(node) < 2 * (SIZE + 5 * 4096)


@contextmanager
def greedy(*paths: Path) -> Iterator[None]:
    command = [sys.executable, "-c", _GREEDY, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def test_keeps_the_files_of_running_containers_over_a_restart(node: ShareFolder) -> None:
    node.lay(*shared(0))
    account, page = files(node, 0)
    before = account.stat().st_ino, page.stat().st_ino
    after = ShareFolder(node.folder)
    assert after.has(shared(0)[0])
    after.lay(*shared(1))
    assert (account.stat().st_ino, page.stat().st_ino) == before
    assert files(after, 0) == (account, page)


def test_forgets_shares_after_a_boot(node: ShareFolder) -> None:
    node.lay(*shared(0))
    unmount(node.folder)
    assert not node.has(shared(0)[0])
    assert node.laid(*shared(0)) is None
    node.lay(*shared(0))
    assert node.has(shared(0)[0])


def test_keeps_an_account_of_a_share_that_the_driver_limits(node: ShareFolder) -> None:
    """The agent charges it; its container does not see it, but one from before a boot may."""
    ids = ["GPU-0::0"]
    sharing = Sharing(memory_mib=1000, action="prevent", enforcement="driver")
    (limits,) = node.lay(ids, [DeviceShare("GPU-0", sharing)])
    assert limits.path == "/usr/lib/divvy/share/limits"
    assert not any(read_account(Path(limits.host).with_name("account")).used)


@pytest.mark.parametrize("of", ["bytes", "inodes"])
def test_reports_a_full_run_folder(tmp_path: Path, of: str) -> None:
    """It has folders of ours alone, and what is in these is on file systems of their own."""
    run = Tmpfs(tmp_path / "run", "divvy-test", 0o755)
    run.mount(1 << 16, 4 if of == "inodes" else 64)
    there, late = ShareFolder(run.folder / "there"), ShareFolder(run.folder / "late")
    try:
        assert not there.mount()
        with suppress(OSError):
            for number in range(4):
                (run.folder / f"fill{number}").write_bytes(bytes(1 << 16 if of == "bytes" else 0))
        there.lay(*shared(0))
        if of == "inodes":
            assert "No space left on device" in late.mount()
            with pytest.raises(NotWritten, match="No space left on device"):
                late.lay(*shared(1))
            (run.folder / "fill0").unlink()
        assert not late.mount()  # a folder takes no bytes
        late.lay(*shared(1))
    finally:
        for folder in ("there", "late", ""):
            unmount(run.folder / folder)


def test_reports_why_shares_cannot_be_placed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    node = ShareFolder(tmp_path / "file/tenants")
    assert "the folder for limited shares cannot be mounted: " in node.mount()
    with pytest.raises(InjectionProblem, match="not written"):
        node.lay(*shared(0))


def test_denies_other_users_access_to_tenants_files(node: ShareFolder) -> None:
    """Root in a container can write a program into its account, and give it the rights of root."""
    node.lay(*shared(0))
    assert node.folder.stat().st_mode & 0o077 == 0
