"""The journal of a run: every step, before and after it happens, one line each.

Its first line names the checkpoint that it continues, by digest; so it is never folded over
one that another program has written since.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from divvy.atomic_file import sync_folder
from divvy.engine.errors import StateProblem
from divvy.engine.state.files import digest, reading, write_all, writing
from divvy.engine.state.resource import ResourceState, renamed, resource_from_json
from divvy.engine.state.sealing import Sealing
from divvy.engine.state.stack_state import Pending, StackState, record_key


class Journal:
    """Notes what a run does, before and after; this one, of a preview, notes nothing."""

    def began(
        self, operation: str, urn: str, identity: str, resource: ResourceState | None = None
    ) -> None:
        """Note that a step is about to happen, and what it would create."""

    def abandoned(self, urn: str) -> None:
        """Note that a step that began has changed nothing."""

    def done(self, resource: ResourceState, replaced: ResourceState | None = None) -> None:
        """Note that a resource now is like this, and which one it has replaced, at once."""

    def gone(self, resource: ResourceState) -> None:
        """Note that a resource no longer exists."""

    def renamed(self, before: str, after: str) -> None:
        """Note that a resource follows an alias to another URN, in every reference to it."""

    def write(self, resources: Iterable[ResourceState], pending: Iterable[Pending] = ()) -> None:
        """Note the end of the run."""


NO_JOURNAL = Journal()


class JournalFile:
    """Lines of JSON appended to a file that is made with the first; thread-safe.

    ``checkpoint`` is the file that it continues.
    """

    def __init__(self, path: Path, checkpoint: Path) -> None:
        self.path = path
        self._checkpoint = checkpoint
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def append(self, record: Mapping[str, Any]) -> None:
        """Put a record on the disk."""
        line = json.dumps(record, separators=(",", ":")) + "\n"
        with self._lock, writing(self.path):
            if self._descriptor is None:
                self._descriptor = self._opened()
            whole = os.fstat(self._descriptor).st_size
            try:
                write_all(self._descriptor, line.encode())
                os.fdatasync(self._descriptor)
            except OSError:
                # What a full disk took of the line must not run into the next one.
                os.ftruncate(self._descriptor, whole)
                raise

    def records(self) -> list[dict[str, Any]]:
        """Return the records; a last line that a crash cut off never happened."""
        if not self.path.exists():
            return []
        try:
            with reading(self.path):
                lines = self.path.read_text(encoding="utf-8").split("\n")[:-1]
            records = [json.loads(line) for line in lines]
        except ValueError as error:
            raise damaged(self.path, error) from None
        if not all(isinstance(record, dict) for record in records):
            raise damaged(self.path, TypeError("a line is not a record"))
        return records

    def remove(self) -> None:
        """Drop the journal: the checkpoint has it all."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None
        self.path.unlink(missing_ok=True)

    def _opened(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = self.path.read_bytes().rfind(b"\n") + 1 if self.path.exists() else 0
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A last line that a crash cut off must not run into the next one.
            os.ftruncate(descriptor, whole)
            if not whole:
                first = json.dumps({"checkpoint": digest(self._checkpoint)}) + "\n"
                write_all(descriptor, first.encode())
                sync_folder(self.path.parent)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def damaged(path: Path, error: Exception) -> StateProblem:
    """Return what is said of a journal that cannot be read."""
    return StateProblem(f"{path} is damaged ({error}); it was not changed")


def continues(records: Sequence[Mapping[str, Any]], checkpoint: str, source: str) -> bool:
    """Tell whether a journal continues the checkpoint with this digest.

    It does not if the checkpoint has all of it: the run died between writing the checkpoint and
    removing the journal. Raises StateProblem if it continues another one.
    """
    if not records or any(record.get("folded") == checkpoint for record in records):
        return False
    base = next((record["checkpoint"] for record in records if "checkpoint" in record), checkpoint)
    if base != checkpoint:
        raise StateProblem(
            f"{source} holds the steps of a run that died, and since then another program has "
            "written the checkpoint: put back the checkpoint that the run began with (its .bak), "
            "or, if you know what the run created, remove the journal"
        )
    return True


def folded(
    checkpoint: StackState, records: Sequence[Mapping[str, Any]], sealing: Sealing
) -> StackState:
    """Return a checkpoint after the steps of a journal."""
    state = {_key(resource): resource for resource in checkpoint.resources}
    pending = {resource.urn: resource for resource in checkpoint.pending}
    for record in records:
        sealing.use_salt(record.get("salt"))
        if "began" in record:
            began = record["began"]
            if "made" in began:
                pending[began["urn"]] = sealing.pending(began["operation"], began["made"])
        elif "abandoned" in record:
            pending.pop(record["abandoned"], None)
        elif "done" in record:
            resource = sealing.opened(record["done"])
            pending.pop(resource.urn, None)
            state[_key(resource)] = resource
            if "replaced" in record:
                replaced = sealing.opened(record["replaced"])
                state[_key(replaced)] = replaced
        elif "renamed" in record:
            names = record["renamed"]
            followed = [
                renamed(resource, names["from"], names["to"]) for resource in state.values()
            ]
            state = {_key(resource): resource for resource in followed}
        elif "gone" in record:
            state.pop(_key(resource_from_json(record["gone"])), None)
        elif not {*record} <= {"salt", "checkpoint", "folded"}:
            raise ValueError(f"a newer divvy has written {', '.join(sorted(record))}")
    return StackState(tuple(state.values()), tuple(pending.values()))


def _key(resource: ResourceState) -> tuple[str, ...]:
    """Return the key of a resource; replaced ones with the same URN have their own."""
    return record_key(resource) if resource.delete else (resource.urn,)
