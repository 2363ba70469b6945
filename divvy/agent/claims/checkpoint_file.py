"""The driver's checkpoint on the node's disk: written before and after whatever is done."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from divvy.agent.claims.copies import read_copies
from divvy.agent.decide.claim_record import ClaimRecord, HeldClaim, decoded, encoded, put_right
from divvy.agent.inject.atomic_file import replace_file

_log = logging.getLogger(__name__)
_FILE = "claims.json"
_VERSION = 1
_MODE = 0o600


class ClaimsFile:
    """What claims hold; ``record`` is what a driver that starts now would find.

    ``on_change`` is called after each change that is saved. A file that cannot be read stays as it
    is, and nothing is saved over it: it may name holders that are still there. Where there is none,
    or an older one than the ``copies`` of claims, they say what is held.
    """

    def __init__(self, folder: Path, copies: Path, on_change: Callable[[], None]) -> None:
        self._path = folder / _FILE
        self._copies = copies
        self._on_change = on_change
        self._damage = ""
        self.record = self._read()

    @property
    def damage(self) -> str:
        """Say that the file cannot be read, "" where it can or somebody has removed it."""
        if self._damage and not self._path.exists():
            self._damage = ""
            self.record = self._read()
        return self._damage

    @property
    def held(self) -> ClaimRecord:
        """Return what is held, as far as it is known where the file cannot be read."""
        return read_copies(self._copies) if self.damage else self.record

    def _read(self) -> ClaimRecord:
        try:
            raw = json.loads(self._path.read_text())
            if raw["version"] != _VERSION:
                raise ValueError(f"version {raw['version']}")  # noqa: TRY301
            return self._put_right(decoded(raw), "is older than the claims that are held")
        except FileNotFoundError:
            return self._put_right(ClaimRecord(), "is gone")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._damage = (
                f"{self._path} cannot be read ({error}): no claim is prepared or given back until "
                "you remove it; pods on this node keep what they hold"
            )
            _log.error("%s", self._damage)
            return ClaimRecord()

    def _put_right(self, record: ClaimRecord, why: str) -> ClaimRecord:
        found = put_right(record, read_copies(self._copies))
        if found != record:
            held = ", ".join(claim.text for claim in found.claims.values())
            _log.warning("%s %s; known by their copies: %s", self._path, why, held)
            with contextlib.suppress(OSError):  # the next change writes it
                self._write(found)
        return found

    def _write(self, record: ClaimRecord) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": _VERSION, **encoded(record)}, sort_keys=True)
        replace_file(self._path, text.encode(), _MODE)

    def save(self, record: ClaimRecord) -> None:
        """Replace it atomically and durably where it is another; raises OSError."""
        if record == self.record:
            return
        if self.damage:
            raise OSError(self.damage)
        self._write(record)
        self.record = record
        self._on_change()

    def put(self, claim: HeldClaim) -> None:
        """Note a claim as it is now; raises OSError."""
        self.save(replace(self.record, claims={**self.record.claims, claim.uid: claim}))

    def drop(self, uid: str) -> None:
        """Forget a claim that was given back; raises OSError."""
        claims = {known: claim for known, claim in self.record.claims.items() if known != uid}
        self.save(replace(self.record, claims=claims))
