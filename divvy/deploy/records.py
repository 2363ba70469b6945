"""A release as Helm records it: one Secret for each revision, in the release's namespace.

Helm refuses to work on a release whose newest record is pending. A process that is killed in an
install, upgrade or rollback leaves such a record; nothing says whether the process still lives.
``as_interrupted`` turns the record into one that failed, from which the next upgrade goes on. The
record is kept: its manifest names what the killed run may have created.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

RECORDS = "owner=helm"
_KEY = "release"
_FAILED = "failed"
# An uninstall that was killed: Helm upgrades no such release, and uninstalls it once more.
_UNINSTALLING = "uninstalling"
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback", _UNINSTALLING)


class UnreadableRecord(Exception):
    """A Secret of Helm's that holds no record of a release; the text says why."""


@dataclass(frozen=True)
class Record:
    """One revision of a release; ``values`` are those that were given beside the chart's own."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    manifest: str = ""
    time: str = ""
    description: str = ""

    @property
    def is_pending(self) -> bool:
        """Return whether a process is at work on it, or was killed."""
        return self.status in _PENDING

    @property
    def is_deployed(self) -> bool:
        """Return whether its objects are what the cluster has been brought to."""
        return self.status == "deployed"

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the manifest."""
        documents = yaml.load_all(self.manifest, Loader=yaml.CSafeLoader)
        return [document for document in documents if isinstance(document, dict)]


def record_of(secret: Mapping[str, Any]) -> Record:
    """Return the record that a Secret holds; raises UnreadableRecord."""
    release = _decoded(secret)
    try:
        info, metadata = release["info"], release["chart"]["metadata"]
        return Record(
            name=str(release["name"]),
            namespace=str(release["namespace"]),
            revision=int(release["version"]),
            status=str(info["status"]),
            chart=str(metadata["name"]),
            annotations=dict(metadata.get("annotations") or {}),
            values=dict(release.get("config") or {}),
            manifest=str(release.get("manifest") or ""),
            time=str(info.get("last_deployed") or ""),
            description=str(info.get("description") or ""),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as odd:
        raise UnreadableRecord(f"{_name(secret)} has another form: {odd!r}") from None


def newest(records: Iterable[Record]) -> Record | None:
    """Return the record of the highest revision, None if there is none."""
    return max(records, key=lambda record: record.revision, default=None)


def as_interrupted(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Secret of a pending record as that of a failed one."""
    release = _decoded(secret)
    info = {
        **release["info"],
        "status": _FAILED,
        "description": f"interrupted in {release['info']['status']}",
    }
    metadata = secret["metadata"]
    labels = {**(metadata.get("labels") or {}), "status": _FAILED}
    return {
        **secret,
        # Items of a list have neither.
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "labels": labels},
        "data": {**secret["data"], _KEY: _encoded({**release, "info": info})},
    }


def _decoded(secret: Mapping[str, Any]) -> dict[str, Any]:
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"][_KEY]))
        release = dict(json.loads(gzip.decompress(packed)))
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error, binascii.Error) as odd:
        raise UnreadableRecord(f"{_name(secret)} cannot be read: {odd}") from None
    except RecursionError:
        raise UnreadableRecord(f"{_name(secret)} cannot be read: it is nested too deep") from None
    return release


def _encoded(release: Mapping[str, Any]) -> str:
    packed = gzip.compress(json.dumps(release, separators=(",", ":")).encode(), mtime=0)
    return base64.b64encode(base64.b64encode(packed)).decode()


def _name(secret: Mapping[str, Any]) -> str:
    return f"Secret {(secret.get('metadata') or {}).get('name')}"
