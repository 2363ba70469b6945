"""Records without what tells whose GPUs they are: a report that is to be shown around."""

from __future__ import annotations

import re
from dataclasses import replace

from conformance.evidence import Evidence
from conformance.report.report import Record

_UUID = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def without_identities(record: Record) -> Record:
    """Return a record without the UUIDs of GPUs and MIG devices."""
    seen = record.evidence
    evidence = Evidence(
        _hidden(seen.expected),
        _hidden(seen.actual),
        _hidden(seen.command),
        [_hidden(text) for text in seen.details],
        seen.figures,
    )
    return replace(record, reason=_hidden(record.reason), evidence=evidence)


def _hidden(text: str) -> str:
    return _UUID.sub(r"\1-…", text)
