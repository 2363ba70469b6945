"""The driver's checkpoint on the node's disk: written before and after whatever is done."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from divvy.agent.decide.claim_record import ClaimRecord, HeldClaim, decoded, encoded
from divvy.agent.inject.atomic_file import replace_file

_log = logging.getLogger(__name__)
_FILE = "claims.json"
_VERSION = 1
_MODE = 0o600


class ClaimsFile:
    """What claims hold; ``record`` is what a driver that starts now would find.

    ``on_change`` is called after each change that is saved. A file that cannot be read stays as it
    is, and nothing is saved over it: it may name holders that are still there.
    """

    def __init__(self, folder: Path, on_change: Callable[[], None]) -> None:
        self._path = folder / _FILE
        self._on_change = on_change
        self._damage = ""
        self.record = self._read()

    @property
    def damage(self) -> str:
        """Say that the file cannot be read, "" where it can or somebody has removed it."""
        if self._damage and not self._path.exists():
            self._damage = ""
        return self._damage

    def _read(self) -> ClaimRecord:
        try:
            raw = json.loads(self._path.read_text())
            if raw["version"] != _VERSION:
                raise ValueError(f"version {raw['version']}")  # noqa: TRY301
            return decoded(raw)
        except FileNotFoundError:
            return ClaimRecord()
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            self._damage = (
                f"{self._path} cannot be read ({error}): no claim is prepared or given back; when "
                "no pod on this node holds a claim, remove it"
            )
            _log.error("%s", self._damage)
            return ClaimRecord()

    def save(self, record: ClaimRecord) -> None:
        """Replace it atomically and durably where it is another; raises OSError."""
        if record == self.record:
            return
        if self.damage:
            raise OSError(self.damage)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"version": _VERSION, **encoded(record)}, sort_keys=True)
        replace_file(self._path, text.encode(), _MODE)
        self.record = record
        self._on_change()

    def put(self, claim: HeldClaim) -> None:
        """Note a claim as it is now; raises OSError."""
        self.save(replace(self.record, claims={**self.record.claims, claim.uid: claim}))

    def drop(self, uid: str) -> None:
        """Forget a claim that was given back; raises OSError."""
        claims = {known: claim for known, claim in self.record.claims.items() if known != uid}
        self.save(replace(self.record, claims=claims))
