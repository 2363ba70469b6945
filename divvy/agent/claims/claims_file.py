"""The driver's checkpoint on the node's disk: written before and after whatever is done."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from divvy.agent.claims.copies import read_copies
from divvy.agent.claims.record import ClaimRecord, HeldClaim, decoded, encoded, repair_from_copies
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file

_log = logging.getLogger(__name__)
_FILE = "claims.json"
_VERSION = 1
_MODE = 0o600


class ClaimsFile:
    """What claims hold; ``record`` is what a driver that starts now would find.

    ``on_change`` is called after each change that is saved. A file that cannot be read stays as it
    is, and nothing is saved over it: it may name holders that are still there. Without a file,
    or with one older than the ``copies`` of claims, they say what is held.
    """

    def __init__(self, folder: Path, copies: Path, on_change: Callable[[], None]) -> None:
        self._path = folder / _FILE
        self._copies = copies
        self._on_change = on_change
        self._damaged: Path | None = None
        self._damage = ""
        self.record = self._read()

    @property
    def damage(self) -> str:
        """Return which file cannot be read, "" if all can or it has been removed."""
        if self._damaged is not None and not os.path.lexists(self._damaged):
            self._damaged, self._damage = None, ""
            self.record = self._read()
        return self._damage

    @property
    def held(self) -> ClaimRecord:
        """Return what is held, as far as it is known where a file cannot be read."""
        if not self.damage:
            return self.record
        copied = read_copies(self._copies).record
        return ClaimRecord(
            {**self.record.offered, **copied.offered}, {**self.record.claims, **copied.claims}
        )

    def _read(self) -> ClaimRecord:
        try:
            raw = json.loads(read_regular_file(self._path))
            if raw["version"] != _VERSION:
                raise ValueError(f"version {raw['version']}")  # noqa: TRY301
            return self._put_right(decoded(raw), "is older than the claims that are held")
        except FileNotFoundError:
            return self._put_right(ClaimRecord(), "is gone")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._spoilt(self._path, str(error))
            return ClaimRecord()

    def _put_right(self, record: ClaimRecord, why: str) -> ClaimRecord:
        copies = read_copies(self._copies)
        repaired = repair_from_copies(record, copies.record)
        for uid, (path, error) in copies.unreadable.items():
            # Of a claim that stands in the record, the copy is written again.
            if uid not in record.claims:
                self._spoilt(path, f"{error}; its claim is in no other file")
                return repaired
        if repaired != record:
            held = ", ".join(claim.text for claim in repaired.claims.values())
            _log.warning("%s %s; known by their copies: %s", self._path, why, held)
            with contextlib.suppress(OSError):  # the next change writes it
                self._write(repaired)
        return repaired

    def _spoilt(self, path: Path, why: str) -> None:
        self._damaged = path
        self._damage = (
            f"{path} cannot be read ({why}): no claim is prepared or released until you move it "
            "away; pods on this node keep what they hold"
        )
        _log.error("%s", self._damage)

    def _write(self, record: ClaimRecord) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": _VERSION, **encoded(record)}, sort_keys=True).encode()
        try:
            replace_file(self._path, text, _MODE)
        except OSError:
            with contextlib.suppress(OSError):
                if read_regular_file(self._path) == text:
                    # Its folder alone could not be synced: a driver that starts now finds it.
                    self.record = record
            raise

    def save(self, record: ClaimRecord) -> None:
        """Replace it atomically and durably where it is another; raises OSError."""
        if record == self.record:
            return
        if self._damaged is not None:
            # If somebody has just removed the damaged file, this record was made of the empty one
            # beside it: saved, it would drop the claims that their copies have brought back.
            if damage := self.damage:
                raise OSError(damage)
            self._on_change()
            raise OSError("the record of claims has just been read again")
        self._write(record)
        self.record = record
        self._on_change()

    def rewrite(self) -> None:
        """Write the same again, to see whether that is possible; raises OSError."""
        self._write(self.record)

    def put(self, claim: HeldClaim) -> None:
        """Note a claim as it is now; raises OSError."""
        self.save(replace(self.record, claims={**self.record.claims, claim.uid: claim}))

    def drop(self, uid: str) -> None:
        """Forget a claim that was given back; raises OSError."""
        claims = {known: claim for known, claim in self.record.claims.items() if known != uid}
        self.save(replace(self.record, claims=claims))
