"""The account of a share: a file that the limiter in its containers keeps and the agent reads.

Layout: plugin_image/limiter/share/account.h. A tenant can write anything into it; so nothing in
it is trusted, and nothing of it leads anywhere but to this tenant's own figures.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from divvy.agent.inject.share import MAX_DEVICES
from divvy.agent.inject.tenant_file import cut, opened
from divvy.atomic_file import replace_file

MAX_SLOTS = 512
_MAGIC = 0x32545041
_HEADER = struct.Struct("<II")
_FIGURES = struct.Struct(f"<{MAX_DEVICES}Q")
_SLOT_HEAD = struct.Struct("<IIQ")
_OUTSIDE = _HEADER.size
_REFUSED = _OUTSIDE + _FIGURES.size
_WAITED = _REFUSED + _FIGURES.size
_OPENED = _WAITED + _FIGURES.size
_TO_HOST = _OPENED + _FIGURES.size
_SLOTS = _TO_HOST + _FIGURES.size
_BYTES = _SLOT_HEAD.size
_BEYOND = _BYTES + _FIGURES.size
_SLOT = _BEYOND + _FIGURES.size
SIZE = _SLOTS + MAX_SLOTS * _SLOT
# Any user of the container is a tenant's process, and only its own share is in the file.
_MODE = 0o666
# A tenant may hold a million locks on its account, and each question walks past them.
_MAX_PROCESSOR_SECONDS = 0.02


@dataclass(frozen=True)
class Slot:
    """What one living process has, in bytes by device; its number is that of its own namespace."""

    index: int
    pid: int
    pid_namespace: int
    allocated: tuple[int, ...]


@dataclass(frozen=True)
class Figures:
    """What an account tells, by device: bytes, requests refused, seconds waited, gates opened.

    ``to_host`` counts the requests that the GPU had no room for and the host's memory took.
    """

    slots: tuple[Slot, ...]
    used: tuple[int, ...]
    refused: tuple[int, ...]
    waited: tuple[float, ...]
    opened: tuple[int, ...]
    to_host: tuple[int, ...]


class AccountProblem(Exception):
    """An account cannot be used; the text says why."""


class OtherFormat(AccountProblem):
    """The file is no account as this agent makes them: another agent's, or spoilt by its tenant."""


def create_account(path: Path) -> None:
    """Put an empty account in the place of an earlier tenant's; raises OSError.

    Always a new file: who was given the old one may still have it open, and may have changed
    its mode and owner.
    """
    replace_file(path, _HEADER.pack(_MAGIC, 0) + bytes(SIZE - _HEADER.size), _MODE)


def cut_account(path: Path) -> None:
    """Take back what its tenant has beyond an account; raises OSError."""
    with opened(path) as file:
        cut(file, SIZE)


def read_account(path: Path) -> Figures:
    """Read what the living processes of a share have; raises AccountProblem."""
    with _sound(path) as (file, data):
        slots = tuple(_slots(file, data))
        outside = _FIGURES.unpack_from(data, _OUTSIDE)
        used = list(outside)
        for slot in slots:
            beyond = _FIGURES.unpack_from(data, _SLOTS + slot.index * _SLOT + _BEYOND)
            for at in range(MAX_DEVICES):
                used[at] += slot.allocated[at] + beyond[at]
        return Figures(
            slots,
            tuple(used),
            _FIGURES.unpack_from(data, _REFUSED),
            tuple(nanoseconds / 1e9 for nanoseconds in _FIGURES.unpack_from(data, _WAITED)),
            _FIGURES.unpack_from(data, _OPENED),
            _FIGURES.unpack_from(data, _TO_HOST),
        )


def write_beyond(
    path: Path, beyond: Mapping[Slot, tuple[int, ...]], outside: tuple[int, ...]
) -> None:
    """Write what NVML sees above what the slots say, and of processes without one; in bytes.

    Raises AccountProblem. A slot that has changed hands since is left alone.
    """
    with _sound(path) as (file, data):
        living = {(slot.index, slot.pid, slot.pid_namespace) for slot in _slots(file, data)}
        for slot, figures in beyond.items():
            if (slot.index, slot.pid, slot.pid_namespace) in living:
                os.pwrite(file, _FIGURES.pack(*figures), _SLOTS + slot.index * _SLOT + _BEYOND)
        os.pwrite(file, _FIGURES.pack(*outside), _OUTSIDE)


@contextmanager
def _sound(path: Path) -> Iterator[tuple[int, bytes]]:
    try:
        with opened(path) as file:
            # Read, not mapped: a tenant can cut the file off, and who touches the map is ended.
            data = os.pread(file, SIZE, 0)
            if len(data) < SIZE or _HEADER.unpack_from(data)[0] != _MAGIC:
                raise OtherFormat(f"{path}: an account in a different format from this agent's")
            yield file, data
    except OSError as error:
        raise AccountProblem(f"{path}: {error.strerror or error}") from error


def _slots(file: int, data: bytes) -> Iterator[Slot]:
    top = min(_HEADER.unpack_from(data)[1], MAX_SLOTS)
    began = time.thread_time()
    for index in range(top):
        if time.thread_time() - began > _MAX_PROCESSOR_SECONDS:
            raise AccountProblem("too many locks on the account")
        at = _SLOTS + index * _SLOT
        pid, _, namespace = _SLOT_HEAD.unpack_from(data, at)
        if pid != 0 and _is_locked(file, 1 + index):
            yield Slot(index, pid, namespace, _FIGURES.unpack_from(data, at + _BYTES))


def _is_locked(file: int, byte: int) -> bool:
    """Tell whether a process holds a byte; Linux's struct flock on 64 bits."""
    layout = struct.Struct("<hhxxxxqqixxxx")
    query = layout.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
    answer = fcntl.fcntl(file, _F_OFD_GETLK, query)
    return bool(layout.unpack(answer)[0] != fcntl.F_UNLCK)


_F_OFD_GETLK = 36
