"""The records of a release in its namespace: read, and settled after a run that was killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from divvy.deploy.changes import ObjectName, Release
from divvy.deploy.errors import DeployError
from divvy.deploy.live_objects import served_kinds
from divvy.deploy.records import (
    RECORDS,
    Record,
    UnreadableRecord,
    as_interrupted,
    newest,
    record_of,
    with_objects,
)
from divvy.kube.client import Client
from divvy.kube.errors import FORBIDDEN, NOT_FOUND, ApiError
from divvy.kube.kind import SECRET
from divvy.render.chart import NAME

DEPLOYER = "divvy.gpu/deployed-by"


class ReleaseRecords:
    """What Helm has recorded of Divvy's chart in a namespace; ``report`` hears what is settled."""

    def __init__(self, client: Client, namespace: str, report: Callable[[str], None]) -> None:
        self._client = client
        self._namespace = namespace
        self._report = report

    @cached_property
    def all(self) -> tuple[Record, ...]:
        """Return every record of Divvy's chart; raises DeployError for one that cannot be read."""
        records, unreadable = [], []
        for secret in self._secrets():
            try:
                record = record_of(secret)
                if record.chart == NAME:
                    records.append(record)
                    _ = record.is_superseded or record.objects
            except UnreadableRecord as unread:
                unreadable.append(unread)
        # Somebody else's release may have any form; one of ours has not.
        ours = {NAME, *(record.name for record in records)}
        for bad in unreadable:
            if bad.release in ours:
                raise DeployError(
                    f"namespace {self._namespace}: {bad}. Restore it, or let Helm forget that "
                    f"revision: kubectl delete secret -n {self._namespace} {bad.name}"
                )
        return tuple(records)

    def _secrets(self) -> Iterator[dict[str, Any]]:
        """Yield the Secrets of Helm's records; what cannot be read may be one of ours."""
        try:
            for page in self._client.pages(
                SECRET.path(self._namespace), {"labelSelector": RECORDS}
            ):
                for name, why in page.skipped.items():
                    raise DeployError(f"Secret {name}, a record of Helm's, cannot be read: {why}")
                yield from page.items
        except ApiError as error:
            if error.code == FORBIDDEN:
                raise DeployError(
                    f"this user may not read Secrets in namespace {self._namespace}, where Helm "
                    f"keeps the release's records: {error}"
                ) from None
            if error.code != NOT_FOUND:
                raise

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects that records name: of a superseded one, none are left."""
        return [obj for record in self.all if not record.is_superseded for obj in record.objects]

    @property
    def newest(self) -> Record | None:
        """Return the newest record; None without any."""
        return newest(self.all)

    @property
    def deployed(self) -> Record | None:
        """Return the last deployed record, else the newest; None without any."""
        return newest(record for record in self.all if record.is_deployed) or self.newest

    def release(self) -> Release:
        """Return the release of Divvy's chart in the namespace, whatever its name is."""
        names = {record.name for record in self.all}
        if len(names) > 1:
            raise DeployError(
                f"namespace {self._namespace} has several releases of Divvy's chart "
                f"({', '.join(sorted(names))}): uninstall all but one"
            )
        return Release(names.pop() if names else NAME, self._namespace)

    def settle(self) -> None:
        """Make records of them from which Helm goes on.

        Pending ones have failed: whoever holds the Lease knows that nobody is at work on them.
        Objects of kinds that the cluster has lost are lost, too.
        """
        self.__dict__.pop("all", None)  # what was read before the Lease may be old
        names = {ObjectName.of(obj) for obj in self.objects()}
        kinds = {(name.api_version, name.kind) for name in names}
        lost = (
            kinds - served_kinds(self._client, {version for version, _ in kinds})
            if kinds
            else set()
        )
        for api_version, kind in sorted(lost):
            self._report(
                f"the cluster has no {kind} ({api_version}) any more: the release goes on without"
            )
        for record in self.all:
            settled = record.secret
            if record.is_pending:
                self._refuse_helms_own(record)
                self._report(f"revision {record.revision} was interrupted: going on from there")
                settled = as_interrupted(settled)
            if lost and not record.is_superseded:
                kept = [
                    obj for obj in record.objects if (obj["apiVersion"], obj["kind"]) not in lost
                ]
                settled = with_objects(settled, kept)
            if settled is not record.secret:
                path = SECRET.path(self._namespace, record.secret["metadata"]["name"])
                self._client.request("PUT", path, settled)

    def _refuse_helms_own(self, record: Record) -> None:
        """Raise DeployError for a pending record that is not of a run of Divvy's."""
        if DEPLOYER in record.annotations and record.status != "pending-rollback":
            return
        raise DeployError(
            f"Helm has been at work on release {record.name} since {record.time} "
            f"({record.status}), and not for `divvy up`: wait until it has ended. If it was "
            f"interrupted: kubectl delete secret -n {self._namespace} "
            f"{record.secret['metadata']['name']}"
        )
