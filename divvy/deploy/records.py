"""A release as Helm records it: one Secret for each revision, in the release's namespace.

Helm refuses to work on a release whose newest record is pending. A process that is killed in an
install, upgrade or rollback leaves such a record; nothing says whether the process still lives.
``as_interrupted`` turns the record into one that failed, from which the next upgrade goes on. The
record is kept: its manifest names what the killed run may have created.

Helm also refuses a release whose manifest has an object of a kind that the cluster no longer
serves, in upgrades and in uninstalls. ``with_objects`` takes such objects from a record, as Helm's
documentation tells people to do.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import yaml

RECORDS = "owner=helm"
_KEY = "release"
_FAILED = "failed"
# Of such a record, nothing is in the cluster but what a later one has, too.
_SUPERSEDED = "superseded"
# An uninstall that was killed: Helm upgrades no such release, and uninstalls it once more.
_UNINSTALLING = "uninstalling"
_PENDING = ("pending-install", "pending-upgrade", "pending-rollback", _UNINSTALLING)


class UnreadableRecord(Exception):
    """A Secret of Helm's that holds no record of a release; the text names it and says why."""

    def __init__(self, secret: Mapping[str, Any], why: str) -> None:
        metadata = secret.get("metadata") or {}
        super().__init__(f"Secret {metadata.get('name')} cannot be read: {why}")
        self.release = str((metadata.get("labels") or {}).get("name") or "")
        self.name = str(metadata.get("name"))


@dataclass(frozen=True)
class Record:
    """One revision of a release; ``values`` are those that were given beside the chart's own.

    ``secret`` is where Helm keeps it.
    """

    name: str
    revision: int
    status: str
    chart: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    manifest: str = ""
    time: str = ""
    secret: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_pending(self) -> bool:
        """Return whether a process is at work on it, or was killed."""
        return self.status in _PENDING

    @property
    def is_deployed(self) -> bool:
        """Return whether its objects are what the cluster has been brought to."""
        return self.status == "deployed"

    @property
    def is_superseded(self) -> bool:
        """Return whether a later revision has replaced it."""
        return self.status == _SUPERSEDED

    @cached_property
    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the manifest; raises UnreadableRecord."""
        try:
            documents = [*yaml.load_all(self.manifest, Loader=yaml.CSafeLoader)]
        except (yaml.YAMLError, RecursionError, ValueError) as odd:
            reason = " ".join(str(odd).split())
            raise UnreadableRecord(self.secret, f"its manifest is no YAML: {reason}") from None
        present = [document for document in documents if document is not None]
        if not all(map(_is_object, present)):
            raise UnreadableRecord(self.secret, "its manifest has something that is no object")
        return present


def record_of(secret: Mapping[str, Any]) -> Record:
    """Return the record that a Secret holds; raises UnreadableRecord."""
    release = _decoded(secret)
    try:
        info, metadata = release["info"], release["chart"]["metadata"]
        return Record(
            name=str(release["name"]),
            revision=int(release["version"]),
            status=str(info["status"]),
            chart=str(metadata["name"]),
            annotations=dict(metadata.get("annotations") or {}),
            values=dict(release.get("config") or {}),
            manifest=str(release.get("manifest") or ""),
            time=str(info.get("last_deployed") or ""),
            secret=secret,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as odd:
        raise UnreadableRecord(secret, f"it has another form: {odd!r}") from None


def newest(records: Iterable[Record]) -> Record | None:
    """Return the record of the highest revision, None if there is none."""
    return max(records, key=lambda record: record.revision, default=None)


def as_interrupted(secret: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Secret of a pending record as that of a failed one."""
    info = _decoded(secret)["info"]
    description = f"interrupted in {info['status']}"
    return _changed(secret, info={**info, "status": _FAILED, "description": description})


def with_objects(secret: Mapping[str, Any], objects: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the Secret of a record with these objects alone in its manifest."""
    documents = [yaml.safe_dump(obj, explicit_start=True) for obj in objects]
    return _changed(secret, manifest="".join(documents))


def _changed(secret: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    release = {**_decoded(secret), **fields}
    metadata = secret["metadata"]
    labels = {**(metadata.get("labels") or {}), "status": release["info"]["status"]}
    return {
        **secret,
        # Items of a list have neither.
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {**metadata, "labels": labels},
        "data": {**secret["data"], _KEY: _encoded(release)},
    }


def _decoded(secret: Mapping[str, Any]) -> dict[str, Any]:
    try:
        packed = base64.b64decode(base64.b64decode(secret["data"][_KEY]))
        release = dict(json.loads(gzip.decompress(packed)))
    except (KeyError, TypeError, ValueError, OSError, EOFError, zlib.error, binascii.Error) as odd:
        raise UnreadableRecord(secret, str(odd)) from None
    except RecursionError:
        raise UnreadableRecord(secret, "it is nested too deep") from None
    return release


def _encoded(release: Mapping[str, Any]) -> str:
    packed = gzip.compress(json.dumps(release, separators=(",", ":")).encode(), mtime=0)
    return base64.b64encode(base64.b64encode(packed)).decode()


def _is_object(document: object) -> bool:
    """Return whether a document of a manifest can be named as an object of the API."""
    if not isinstance(document, dict) or not isinstance(document.get("metadata"), dict):
        return False
    names = (document.get("apiVersion"), document.get("kind"), document["metadata"].get("name"))
    return all(isinstance(name, str) for name in names)
