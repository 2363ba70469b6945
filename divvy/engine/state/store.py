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
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from divvy.atomic_file import replace_file, sync_folder
from divvy.engine.errors import NotSupported, StateProblem
from divvy.engine.state.checkpoint import check_version, decoded, encoded, salt_of
from divvy.engine.state.files import digest, reading, write_private, writing
from divvy.engine.state.journal import Journal, JournalFile, continues, damaged, folded
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.sealing import Sealing
from divvy.engine.state.stack_state import Pending, StackState


class StateStore(Journal):
    """Reads and writes the state of one stack."""

    def __init__(
        self, root: Path, project: str, stack: str, read_passphrase: Callable[[], str | None]
    ) -> None:
        base = root / ".pulumi"
        self.root = base
        self.stack = stack
        self.project = project
        self.checkpoint_path = base / "stacks" / project / f"{stack}.json"
        self.journal_path = base / "divvy" / project / f"{stack}.journal"
        # A file that is there while the nodes may not follow what the last run changed.
        self.unsettled_path = self.journal_path.with_suffix(".unsettled")
        self._journal = JournalFile(self.journal_path, self.checkpoint_path)
        self._read_passphrase = read_passphrase
        self._sealing = Sealing(None, read_passphrase)
        self._continued: str | None = None

    @property
    def exists(self) -> bool:
        """Tell whether the stack has a checkpoint; raises NotSupported for another layout."""
        packed = self.checkpoint_path.with_name(f"{self.checkpoint_path.name}.gz")
        flat = self.root / "stacks" / self.checkpoint_path.name
        if packed.exists():
            raise NotSupported(
                f"{packed}: a compressed checkpoint; unset PULUMI_DIY_BACKEND_GZIP, run "
                "`pulumi up` once, and it is written uncompressed"
            )
        if flat.exists():
            raise NotSupported(
                f"{flat}: a checkpoint outside its project's folder; run `pulumi state upgrade`"
            )
        return self.checkpoint_path.exists()

    def create(self) -> None:
        """Create the layout with an empty checkpoint, unless one exists."""
        meta = self.root / "meta.yaml"
        if not meta.exists():
            with writing(meta):
                self.root.mkdir(parents=True, exist_ok=True)
                meta.write_text("version: 1\n")
        if not self.exists:
            self.write(())

    def remove(self) -> None:
        """Delete everything that is recorded of the stack."""
        files = (self.checkpoint_path, self._backup, self.journal_path, self.unsettled_path)
        for path in files:
            with writing(path):
                path.unlink(missing_ok=True)

    def load(self) -> StackState:
        """Read the state, an unfinished run folded in; raises StateProblem."""
        checkpoint = self._checkpoint()
        records = self._journal.records()
        if not continues(records, digest(self.checkpoint_path), str(self.journal_path)):
            return checkpoint
        try:
            state = folded(checkpoint, records, self._sealing)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged(self.journal_path, error) from None
        self._sealing.remember(state.resources)
        return state

    def begin(self, state: StackState) -> None:
        """Prepare the files for a run that changes the loaded state.

        The journal of a run that died becomes part of the checkpoint; a first run has a layout.
        """
        if self.journal_path.exists():
            self.write(state.resources, state.pending)
        self.create()
        self._continued = digest(self.checkpoint_path)

    def decode(self, raw: Mapping[str, Any]) -> StackState:
        """Return the state that a checkpoint holds; raises StateProblem for a newer version."""
        check_version(raw, self.checkpoint_path.name)
        self._sealing = Sealing(salt_of(raw), self._read_passphrase)
        state = decoded(raw, self._sealing)
        self._sealing.remember(state.resources)
        return state

    def encode(
        self, resources: Iterable[ResourceState], pending: Iterable[Pending] = ()
    ) -> dict[str, Any]:
        """Render a checkpoint."""
        name = f"organization/{self.project}/{self.stack}"
        return encoded(name, resources, pending, self._sealing)

    def write(self, resources: Iterable[ResourceState], pending: Iterable[Pending] = ()) -> None:
        """Replace the checkpoint atomically, keep the former as ``.bak``, drop the journal.

        Steps that were interrupted stay, as the format's pending operations.
        """
        text = json.dumps(self.encode(resources, pending), indent=4)
        with writing(self.checkpoint_path):
            if self._continued not in (None, digest(self.checkpoint_path)):
                self._keep_apart(text)
            self._replace(text)
        if self._continued is not None:
            self._continued = digest(self.checkpoint_path)
        self._journal.remove()

    def began(
        self, operation: str, urn: str, identity: str, resource: ResourceState | None = None
    ) -> None:
        """Note that a step is about to happen, and what it would create."""
        record: dict[str, Any] = {"operation": operation, "urn": urn, "id": identity}
        if resource is not None:
            record["made"] = self._sealing.sealed(resource)
        self._append({"began": record})

    def abandoned(self, urn: str) -> None:
        """Note that a step that began has changed nothing."""
        self._append({"abandoned": urn})

    def done(self, resource: ResourceState, replaced: ResourceState | None = None) -> None:
        """Note that a resource now is like this, and which one it has replaced, at once."""
        record = {"done": self._sealing.sealed(resource)}
        if replaced is not None:
            record["replaced"] = self._sealing.sealed(replaced)
        self._append(record)

    def gone(self, resource: ResourceState) -> None:
        """Note that a resource no longer exists."""
        self._append({"gone": self._sealing.sealed(resource)})

    def renamed(self, before: str, after: str) -> None:
        """Note that a resource follows an alias to another URN, in every reference to it."""
        self._append({"renamed": {"from": before, "to": after}})

    @property
    def _backup(self) -> Path:
        return self.checkpoint_path.with_name(f"{self.checkpoint_path.name}.bak")

    def _keep_apart(self, text: str) -> NoReturn:
        path = self.checkpoint_path.with_name(f"{self.stack}.json.conflict")
        write_private(path, text)
        raise StateProblem(
            f"another run has written {self.checkpoint_path} while this one was under way (was "
            f"its lock broken?): this run's view of the state was saved to {path}; refresh, and "
            "compare the two"
        )

    def _replace(self, text: str) -> None:
        path = self.checkpoint_path
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        write_private(scratch, text)
        if path.exists():  # a copy: not all file systems have hard links
            replace_file(self._backup, path.read_bytes(), 0o600)
        if self.journal_path.exists():
            # Between here and the journal's end: whichever of the two checkpoints there is,
            # the journal says what it is to it.
            self._append({"folded": hashlib.sha256(text.encode()).hexdigest()})
        scratch.replace(path)
        sync_folder(path.parent)

    def _append(self, record: Mapping[str, Any]) -> None:
        # The salt of the first secret is known only once it is sealed.
        self._journal.append({"salt": self._sealing.salt, **record})

    def _checkpoint(self) -> StackState:
        if not self.exists:
            return StackState()
        try:
            with reading(self.checkpoint_path):
                text = self.checkpoint_path.read_text(encoding="utf-8")
            return self.decode(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateProblem(
                f"{self.checkpoint_path} is not a checkpoint ({error}); it was not changed: "
                f"restore it from {self.checkpoint_path.name}.bak or another backup"
            ) from None
