"""Where a stack's state lies: the official file backend's layout, with a journal beside it.

``<root>/.pulumi/stacks/<project>/<stack>.json`` is the checkpoint (deployment
version 3). While a run is under way every step is appended to
``<root>/.pulumi/divvy/<project>/<stack>.journal`` before and after it happens,
so that the cost of a step does not grow with the stack and nothing is lost when
the process dies. The journal is folded into the checkpoint at the end of the
run, or at the start of the next.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from divvy.engine.errors import StateProblem
from divvy.engine.state.resource import (
    ResourceState,
    now,
    renamed,
    resource_from_json,
    resource_to_json,
)
from divvy.engine.state.secrets import Passphrase, opened, sealed

CHECKPOINT_VERSION = 3
ENGINE_VERSION = "v3.272.0"


@dataclass(frozen=True)
class Pending:
    """A step that began and whose end nobody saw; ``made`` is what a creation would have made."""

    operation: str
    urn: str
    id: str
    made: ResourceState | None = None


@dataclass(frozen=True)
class StackState:
    """All resources of a stack in dependency order, and the steps cut off in the middle."""

    resources: tuple[ResourceState, ...] = ()
    pending: tuple[Pending, ...] = ()

    def live(self) -> dict[str, ResourceState]:
        """Return resources by URN, without those that only wait for their deletion."""
        return {found.urn: found for found in self.resources if not found.delete}


class StateStore:
    """Reads and writes the state of one stack."""

    def __init__(self, root: Path, project: str, stack: str, read_passphrase: Any) -> None:
        base = root / ".pulumi"
        self.root = base
        self.stack = stack
        self.project = project
        self.checkpoint_path = base / "stacks" / project / f"{stack}.json"
        self._journal_path = base / "divvy" / project / f"{stack}.journal"
        self._journal: int | None = None
        self._lock = threading.Lock()
        self._rest: dict[str, Any] = {}
        self._read_passphrase = read_passphrase
        self.crypter = Passphrase(None, read_passphrase)

    @property
    def exists(self) -> bool:
        """Tell whether the stack has a checkpoint."""
        return self.checkpoint_path.exists()

    def create(self) -> None:
        """Make the layout with an empty checkpoint; nothing happens where there is one."""
        self._meta()
        if not self.exists:
            self.write(())

    def remove(self) -> None:
        """Delete checkpoint and journal."""
        for path in (
            self.checkpoint_path,
            self.checkpoint_path.with_name(f"{self.checkpoint_path.name}.bak"),
            self._journal_path,
        ):
            path.unlink(missing_ok=True)

    def load(self) -> StackState:
        """Read the state, unfinished runs folded in; raises StateProblem."""
        return self._fold(self._read_checkpoint())

    def _read_checkpoint(self) -> tuple[ResourceState, ...]:
        if not self.exists:
            return ()
        try:
            raw = json.loads(self.checkpoint_path.read_text())
            return self.decode(raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateProblem(
                f"{self.checkpoint_path} is not a checkpoint ({error}); it was left as it is: "
                f"restore it from {self.checkpoint_path.name}.bak or another backup"
            ) from None

    def decode(self, raw: Mapping[str, Any]) -> tuple[ResourceState, ...]:
        """Return the resources of a checkpoint; raises StateProblem for a newer version."""
        version = raw["version"]
        if version != CHECKPOINT_VERSION:
            raise StateProblem(
                f"{self.checkpoint_path.name} has checkpoint version {version}; this engine reads "
                f"and writes version {CHECKPOINT_VERSION}: use a newer divvy, the file is untouched"
            )
        latest = raw["checkpoint"].get("latest") or {}
        providers = latest.get("secrets_providers") or {}
        kind = providers.get("type", "passphrase")
        if kind not in ("passphrase", ""):
            raise StateProblem(f"the stack's secrets provider is {kind}: only passphrase is known")
        self.crypter = Passphrase((providers.get("state") or {}).get("salt"), self._read_passphrase)
        if latest.get("pending_operations"):
            raise StateProblem(
                "the checkpoint has pending operations of another engine: finish or clear them "
                "there first (`pulumi refresh`)"
            )
        return tuple(self._opened(found) for found in latest.get("resources") or ())

    def encode(self, resources: Iterable[ResourceState]) -> dict[str, Any]:
        """Render a checkpoint."""
        rendered = [self._sealed(resource) for resource in resources]
        latest: dict[str, Any] = {
            "manifest": {
                "time": now(),
                "magic": hashlib.sha256(ENGINE_VERSION.encode()).hexdigest(),
                "version": ENGINE_VERSION,
            }
        }
        if self.crypter.salt is not None:
            latest["secrets_providers"] = {
                "type": "passphrase",
                "state": {"salt": self.crypter.salt},
            }
        if rendered:
            latest["resources"] = rendered
        latest["metadata"] = {}
        name = f"organization/{self.project}/{self.stack}"
        return {
            "version": CHECKPOINT_VERSION,
            "checkpoint": {"stack": name, "latest": latest},
        }

    def write(self, resources: Iterable[ResourceState]) -> None:
        """Replace the checkpoint atomically, keep the former as ``.bak``, drop the journal."""
        text = json.dumps(self.encode(resources), indent=4)
        path = self.checkpoint_path
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        with scratch.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            backup = path.with_name(f"{path.name}.bak")
            backup.unlink(missing_ok=True)
            backup.hardlink_to(path)
        scratch.replace(path)
        _sync_folder(path.parent)
        self._close_journal()
        self._journal_path.unlink(missing_ok=True)

    def began(
        self, operation: str, urn: str, identity: str, made: ResourceState | None = None
    ) -> None:
        """Note that a step is about to happen, and what it would make."""
        record: dict[str, Any] = {"operation": operation, "urn": urn, "id": identity}
        if made is not None:
            record["made"] = self._sealed(made)
        self._append({"began": record})

    def done(self, resource: ResourceState) -> None:
        """Note that a resource now is like this."""
        self._append({"done": self._sealed(resource)})

    def gone(self, resource: ResourceState) -> None:
        """Note that a resource no longer exists."""
        self._append({"gone": {"urn": resource.urn, "id": resource.id, "delete": resource.delete}})

    def renamed(self, before: str, after: str) -> None:
        """Note that a resource, and whoever names it, follows an alias to another URN."""
        self._append({"renamed": {"from": before, "to": after}})

    def _append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps({"salt": self.crypter.salt, **record}, separators=(",", ":")) + "\n"
        with self._lock:
            if self._journal is None:
                self._journal_path.parent.mkdir(parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._journal = os.open(self._journal_path, flags, 0o600)
                _sync_folder(self._journal_path.parent)
            os.write(self._journal, line.encode())
            os.fdatasync(self._journal)

    def _close_journal(self) -> None:
        with self._lock:
            if self._journal is not None:
                os.close(self._journal)
                self._journal = None

    def _fold(self, resources: tuple[ResourceState, ...]) -> StackState:
        if not self._journal_path.exists():
            return StackState(resources)
        state = {_key(found.urn, found.id, delete=found.delete): found for found in resources}
        pending: dict[str, Pending] = {}
        for record in _whole_lines(self._journal_path):
            if record.get("salt") and self.crypter.salt is None:
                self.crypter = Passphrase(record["salt"], self._read_passphrase)
            if "began" in record:
                began = record["began"]
                made = self._opened(began["made"]) if "made" in began else None
                pending[began["urn"]] = Pending(began["operation"], began["urn"], began["id"], made)
            elif "done" in record:
                resource = self._opened(record["done"])
                pending.pop(resource.urn, None)
                if resource.delete:
                    state.pop(_key(resource.urn, resource.id, delete=False), None)
                state[_key(resource.urn, resource.id, delete=resource.delete)] = resource
            elif "renamed" in record:
                names = record["renamed"]
                followed = [renamed(one, names["from"], names["to"]) for one in state.values()]
                state = {_key(one.urn, one.id, delete=one.delete): one for one in followed}
            else:
                gone = record["gone"]
                pending.pop(gone["urn"], None)
                state.pop(_key(gone["urn"], gone["id"], delete=gone["delete"]), None)
        return StackState(tuple(state.values()), tuple(pending.values()))

    def _sealed(self, resource: ResourceState) -> dict[str, Any]:
        raw = resource_to_json(resource)
        for name in ("inputs", "outputs"):
            if name in raw:
                raw[name] = sealed(raw[name], self.crypter)
        return raw

    def _opened(self, raw: Mapping[str, Any]) -> ResourceState:
        resource = resource_from_json(raw)
        inputs, outputs = (
            opened(resource.inputs, self.crypter),
            opened(resource.outputs, self.crypter),
        )
        return replace(resource, inputs=inputs, outputs=outputs)

    def _meta(self) -> None:
        meta = self.root / "meta.yaml"
        if not meta.exists():
            self.root.mkdir(parents=True, exist_ok=True)
            meta.write_text("version: 1\n")


def _key(urn: str, identity: str, *, delete: bool) -> tuple[str, str]:
    """Return what tells a resource from its replaced namesake."""
    return (urn, identity) if delete else (urn, "")


def _whole_lines(path: Path) -> Iterable[dict[str, Any]]:
    """Yield the journal's records; a last line cut off by a crash never happened."""
    for line in path.read_text().split("\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError as error:
            raise StateProblem(f"{path} is damaged ({error}); it was left as it is") from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
