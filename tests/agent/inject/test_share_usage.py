"""The account of a share is in a tenant's hands: nothing it does to the file reaches the agent."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from divvy.agent.inject.share_usage import (
    SIZE,
    AccountProblem,
    create_account,
    cut_account,
    read_account,
    write_beyond,
)
from divvy.agent.inject.time_share_page import create_page, cut_page

_READER = """
import sys, time
from pathlib import Path
from divvy.agent.inject.share_usage import AccountProblem, read_account, write_beyond
end = time.monotonic() + 4
read = 0
while time.monotonic() < end:
    try:
        read_account(Path(sys.argv[1]))
        write_beyond(Path(sys.argv[1]), {}, (0,) * 16)
        read += 1
    except AccountProblem:
        pass
print(read)
"""


def test_survives_a_tenant_that_truncates_its_account(tmp_path: Path) -> None:
    """What is mapped of a file that was cut off ends who touches it, by SIGBUS."""
    account = tmp_path / "account"
    create_account(account)
    whole = account.read_bytes()
    # All slots in use: there is much to look at.
    account.write_bytes(whole[:4] + (512).to_bytes(4, "little") + whole[8:])
    command = [sys.executable, "-c", _READER, str(account)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE) as reader,
        account.open("r+b") as file,
    ):
        while reader.poll() is None:
            os.truncate(file.fileno(), 0)
            os.pwrite(file.fileno(), whole[:4] + (512).to_bytes(4, "little"), 0)
            os.truncate(file.fileno(), SIZE)
        assert reader.returncode == 0


@pytest.mark.parametrize("kept", [0, 8], ids=["all of it", "its figures"])
def test_gives_the_next_tenant_a_clean_account(tmp_path: Path, kept: int) -> None:
    account = tmp_path / "account"
    create_account(account)
    account.write_bytes(account.read_bytes()[:kept] + b"x" * (SIZE - kept))
    create_account(account)
    assert not any(read_account(account).used)


def test_hides_the_next_tenants_account_from_who_kept_the_old_one_open(tmp_path: Path) -> None:
    """A pod can hand the open file to another one of its owner's, and end."""
    account = tmp_path / "account"
    create_account(account)
    with account.open("r+b") as kept:
        # One slot, which its process still has.
        kept.write(account.read_bytes()[:4] + (1).to_bytes(4, "little") + b"\1" * (SIZE - 8))
        kept.flush()
        lock(kept.fileno(), 1)
        account.chmod(0o600)
        create_account(account)
        kept.seek(4)
        kept.write(b"\xff" * (SIZE - 4))
        kept.flush()
        assert not any(read_account(account).used)
    assert account.stat().st_mode & 0o777 == 0o666


def test_gives_the_page_to_its_next_tenant(tmp_path: Path) -> None:
    page = tmp_path / "page"
    create_page(page, 25)
    page.chmod(0o600)
    os.chown(page, 1000, 1000)
    create_page(page, 25)
    status = page.stat()
    assert (status.st_mode & 0o777, status.st_uid) == (0o666, os.geteuid())


def test_hides_the_next_tenants_page_from_who_kept_the_old_one_open(tmp_path: Path) -> None:
    """A pod can hand the open file to another one of its owner's, and end."""
    page = tmp_path / "page"
    create_page(page, 25)
    sound = page.read_bytes()
    with page.open("r+b") as kept:
        create_page(page, 25)
        kept.seek(8)
        kept.write(b"\xff" * 8)
        kept.flush()
        assert page.read_bytes() == sound


@contextmanager
def leased(path: Path) -> Iterator[None]:
    """Take a lease: who opens the file then waits up to 45 s for its end."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    file = os.open(path, os.O_RDWR)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(file)
        signal.signal(signal.SIGIO, before)


def test_does_not_wait_for_a_tenants_lease_on_its_files(tmp_path: Path) -> None:
    """Root in a container has the rights to it without any capability: the file is root's."""
    account, page = tmp_path / "account", tmp_path / "page"
    create_account(account)
    create_page(page, 25)
    os.truncate(page, 1 << 20)
    began = time.monotonic()
    with leased(account), pytest.raises(AccountProblem):
        read_account(account)
    with leased(page), pytest.raises(OSError, match="temporarily unavailable"):
        cut_page(page)
    with leased(page):
        create_page(page, 25)
    assert time.monotonic() - began < 5


def lock(file: int, start: int) -> None:
    wanted = struct.pack("<hhxxxxqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, start, 1, 0)
    fcntl.fcntl(file, 37, wanted)  # F_OFD_SETLK


def test_delays_only_the_tenant_that_holds_thousands_of_locks(tmp_path: Path) -> None:
    account = tmp_path / "account"
    create_account(account)
    whole = account.read_bytes()
    with account.open("r+b") as file:
        file.write(whole[:4] + (512).to_bytes(4, "little") + b"\1" * (SIZE - 8))
        file.flush()
        for at in range(10_000):
            lock(file.fileno(), 1_000_000 - 2 * at)
        began = time.thread_time()
        with pytest.raises(AccountProblem, match="too many locks"):
            read_account(account)
        assert time.thread_time() - began < 0.1


def test_removes_what_a_tenant_appends_to_its_account(tmp_path: Path) -> None:
    account = tmp_path / "account"
    create_account(account)
    os.truncate(account, 1 << 30)
    cut_account(account)
    assert account.stat().st_size == SIZE


def test_writes_the_shares_current_weight_into_its_page(tmp_path: Path) -> None:
    """The replica had another weight before the profile was changed, or its tenant wrote one."""
    page = tmp_path / "page"
    create_page(page, 25)
    create_page(page, 50)
    assert page.read_bytes()[4:8] == (50).to_bytes(4, "little")


def test_removes_what_a_tenant_appends_to_its_page(tmp_path: Path) -> None:
    page = tmp_path / "page"
    create_page(page, 25)
    before = page.read_bytes()
    os.truncate(page, 1 << 30)
    cut_page(page)
    assert page.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"x" * SIZE, b"A" * 100])
def test_distinguishes_a_corrupt_account(tmp_path: Path, content: bytes) -> None:
    account = tmp_path / "account"
    account.write_bytes(content)
    with pytest.raises(AccountProblem, match="in a different format"):
        read_account(account)
    with pytest.raises(AccountProblem, match="an account in a different format"):
        write_beyond(account, {}, (0,) * 16)


def test_follows_no_link(tmp_path: Path) -> None:
    create_account(tmp_path / "other")
    (tmp_path / "account").symlink_to(tmp_path / "other")
    with pytest.raises(AccountProblem):
        read_account(tmp_path / "account")


def test_reads_nonsense_in_an_account_as_figures(tmp_path: Path) -> None:
    account = tmp_path / "account"
    create_account(account)
    content = account.read_bytes()
    account.write_bytes(content[:4] + b"\xff" * (SIZE - 4))
    assert read_account(account).slots == ()  # no process holds a slot's byte
