"""The release of a stack in its cluster: look, deploy, destroy.

``Deployment.deploy`` is one order of steps in which a run may be killed at any instant:

1. the namespace, with the Pod Security level that the agent needs;
2. the Lease: of two runs, one waits for the other, and takes over 15 s after it was killed;
3. records of Helm's that a killed run left pending become failed ones, and lose objects of kinds
   that the cluster has lost;
4. the image, which is built and pushed;
5. the admission policies that the cluster lacks, so that no agent runs a moment without them: Helm
   installs policies after workloads. They carry the release's annotations, so Helm adopts them;
6. ``helm upgrade --install``;
7. objects that failed records name and the stack no longer has: Helm compares with the last
   deployed record alone, and would leave them.

The next run begins with 1 and finds each step done or undone; only step 6 changes a release.
"""

from __future__ import annotations

import getpass
import os
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from divvy.deploy.agent_image import AgentImage, agent_image, built
from divvy.deploy.changes import (
    PULUMI,
    Action,
    Change,
    ObjectName,
    Release,
    is_divvys,
    removed,
)
from divvy.deploy.helm import Helm, HelmFailed
from divvy.deploy.live_objects import (
    Preview,
    any_owned,
    create_missing,
    delete_owned,
    forget_manager,
    preview_objects,
    refused,
    served_kinds,
    whose,
)
from divvy.deploy.records import (
    RECORDS,
    Record,
    UnreadableRecord,
    as_interrupted,
    newest,
    record_of,
    with_objects,
)
from divvy.deploy.rights import missing_rights
from divvy.deploy.waiting import WORKLOADS
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from divvy.kube.kind import CONFIG_MAP as CONFIG_MAP_KIND
from divvy.kube.kind import NAMESPACE, POD, SECRET
from divvy.kube.lease import HeldLease, Lease, hold_lease
from divvy.kube.media_types import APPLY
from divvy.model import Cluster, ClusterDocument, InvalidCluster, NewerSchema, parse_canonical
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP, KEPT_REPORT
from divvy.render.chart import NAME, Chart, chart_files, chart_objects
from divvy.render.objects.cluster import objects
from divvy.render.objects.policy_names import policy_names
from divvy.version_info import git_revision
from divvy.version_info import version as installed_version

_MANAGER = "divvy"
_LEASE = "divvy-deploy"
_LASTS, _DEADLINE, _RENEW, _RETRY = 15, 10.0, 3.0, 1.0
_GONE_SECONDS, _LOOK_SECONDS = 120.0, 0.25
_POLICY_API = "admissionregistration.k8s.io/v1"
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
_LEVEL = "pod-security.kubernetes.io/"
STACK, SOURCE, DEPLOYER = "divvy.gpu/stack", "divvy.gpu/source", "divvy.gpu/deployed-by"


class DeployError(Exception):
    """A deployment cannot go on; the text is one clear sentence for each reason."""


@dataclass(frozen=True)
class Stack:
    """A stack as a deployment needs it: its name, its file, and what the file describes."""

    name: str
    path: Path
    document: ClusterDocument

    @property
    def cluster(self) -> Cluster:
        """Return the cluster that the file describes."""
        return self.document.cluster


@dataclass(frozen=True)
class Look:
    """A stack beside its cluster: ``deployed`` is the last deployed record, ``before`` its cluster.

    ``newest`` is the newest record: another one, if what wrote it was killed or failed.
    ``former_stack`` is whose the release is, "" for this stack.
    """

    release: Release
    deployed: Record | None
    newest: Record | None
    before: Cluster | None
    image: AgentImage
    preview: Preview
    former_stack: str = ""

    @property
    def changes(self) -> tuple[Change, ...]:
        """Return what a deployment would change."""
        return self.preview.changes

    @property
    def is_current(self) -> bool:
        """Return whether there is nothing to do for Helm; what is unknown may be something."""
        if self.newest is None or not self.newest.is_deployed:
            return False
        open_ = self.changes or self.preview.unknown or self.values or self.former_stack
        return not open_ and self.image.build is None

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the values that somebody has set on the release by hand."""
        return self.deployed.values if self.deployed else {}


class Deployment:
    """The release of one stack; ``report`` hears what a run waits for."""

    def __init__(self, client: Client, stack: Stack, report: Callable[[str], None]) -> None:
        self._client = client
        self._stack = stack
        self._report = report
        self._namespace = stack.cluster.namespace

    def look(self, *, take_over: bool = False) -> Look:
        """Compare the stack with its release and its objects; raises DeployError, BuildFailed.

        With ``take_over`` also with those objects of Divvy's that belong to no release of Helm's.
        """
        release = self.release
        deployed = self.deployed
        if not take_over:
            self.refuse_another_stack("take it over with --take-over")
        image = agent_image(self._stack.cluster, deployed)
        desired = self._desired(image)
        namespace = self._live_namespace()
        preview = preview_objects(
            self._client,
            release,
            desired,
            removed(self._possible(), desired),
            take_over=take_over,
            namespace_exists=namespace is not None,
        )
        own = self._namespace_change(namespace)
        if own is not None:
            preview = Preview((own,)) + preview
            try:
                self._apply_namespace(namespace, {"dryRun": "All"})
            except ApiError as error:
                preview += refused(own.name, error)
        try:
            preview += Preview(problems=tuple(missing_rights(self._client, self._namespace)))
        except ApiError as error:
            self._report(f"whether this user may write Helm's records is not known: {error}")
        return Look(
            release,
            deployed,
            newest(self._records),
            self.cluster_of(deployed),
            image,
            preview,
            self._former_stack(),
        )

    @property
    def deployed(self) -> Record | None:
        """Return the last deployed record, else the newest; None without any."""
        deployed = (record for record in self._records if record.is_deployed)
        return newest(deployed) or newest(self._records)

    def refuse_another_stack(self, remedy: str) -> None:
        """Raise DeployError if another stack has deployed the release; the remedy is for renames.

        A kubeconfig or a context may lead to another cluster than the one that is meant.
        """
        record, former = self.deployed, self._former_stack()
        if record is None or not former:
            return
        raise DeployError(
            f"release {record.name} in namespace {self._namespace} is of stack {former}, not of "
            f"{self._stack.name} (deployed from {record.annotations.get(SOURCE)}, by "
            f"{record.annotations.get(DEPLOYER)}): choose the right context or another "
            f"`namespace`; if the stack was renamed, {remedy}"
        )

    def _former_stack(self) -> str:
        annotations = self.deployed.annotations if self.deployed else {}
        stack = annotations.get(STACK, self._stack.name)
        return "" if stack == self._stack.name else stack

    def workloads(self, image: AgentImage) -> list[ObjectName]:
        """Return the workloads whose pods a deployment starts."""
        return [ObjectName.of(obj) for obj in self._desired(image) if obj["kind"] in WORKLOADS]

    def is_anything_left(self) -> bool:
        """Return whether a namespace or objects are there without a release: of a killed run."""
        live = self._client.find(NAMESPACE.path("", self._namespace))
        if live is not None and is_divvys(live):
            return True
        possible = [*self._possible(), *self._desired(AgentImage(""))]
        return any_owned(self._client, self.release, removed(possible, []))

    def whose_agents(self) -> str | None:
        """Return who else has deployed the agents of the namespace, None if nobody has."""
        name = next(name for name in self.workloads(AgentImage("")) if name.kind == "DaemonSet")
        live = self._client.find(name.path)
        return None if live is None or self.release.owns(live) else whose(live)

    @cached_property
    def release(self) -> Release:
        """Return the release of Divvy's chart in the namespace, whatever its name is."""
        names = {record.name for record in self._records if record.chart == NAME}
        if len(names) > 1:
            raise DeployError(
                f"namespace {self._namespace} has several releases of Divvy's chart "
                f"({', '.join(sorted(names))}): uninstall all but one"
            )
        return Release(names.pop() if names else NAME, self._namespace)

    def deploy(self, helm: Helm, look: Look, *, take_over: bool) -> AgentImage:
        """Bring the cluster to what the stack says; raises DeployError, HelmFailed, BuildFailed."""
        self._ensure_namespace()
        with self._alone() as turn:
            self._settle_records()
            image = built(look.image)
            desired = self._desired(image)
            turn.require()
            for obj in desired:
                if obj["kind"] in _POLICIES:
                    create_missing(self._client, look.release, obj)
            with tempfile.TemporaryDirectory(prefix="divvy-chart-") as folder:
                chart = self._write_chart(Path(folder) / NAME, image)
                turn.require()
                helm.upgrade(
                    look.release,
                    chart,
                    self._description(),
                    force_conflicts=take_over or any(change.managers for change in look.changes),
                    take_ownership=take_over,
                )
            delete_owned(self._client, look.release, removed(self._possible(), desired))
            if take_over:
                forget_manager(self._client, desired, PULUMI)
            return image

    def destroy(self, helm: Helm) -> list[ObjectName]:
        """Uninstall the release; return what else of it was found and deleted."""
        with self._alone() if self._live_namespace() else nullcontext():
            self._settle_records()
            known = [*self._possible(), *self._desired(AgentImage(""))]
            try:
                helm.uninstall(self.release)
            except HelmFailed:
                # It does not say which object it could not delete, nor why: the cluster does.
                delete_owned(self._client, self.release, removed(known, []))
                helm.uninstall(self.release)
            return delete_owned(self._client, self.release, removed(known, []))

    def remove_namespace(self) -> str:
        """Delete the namespace if Divvy has made it and nobody else uses it; return why it stays.

        Raises ApiError if this user may not.
        """
        self._await_gone()
        live = self._live_namespace()
        if live is None:
            return ""
        if not is_divvys(live):
            return f"namespace {self._namespace} stays: Divvy has not made it"
        for kind in (POD, CONFIG_MAP_KIND, SECRET):
            for page in self._client.pages(kind.path(self._namespace)):
                for name in page.skipped:
                    return f"namespace {self._namespace} stays: {kind.kind} {name} cannot be read"
                for obj in page.items:
                    if not _goes_with_namespace(obj):
                        name = obj["metadata"]["name"]
                        return f"namespace {self._namespace} stays: it has {kind.kind} {name}"
        uid = {"preconditions": {"uid": live["metadata"]["uid"]}}
        self._client.request("DELETE", NAMESPACE.path("", self._namespace), uid)
        self._await_gone()
        return ""

    @staticmethod
    def cluster_of(record: Record | None) -> Cluster | None:
        """Return the cluster that a record has deployed, None for one that cannot be read."""
        try:
            for obj in record.objects if record else ():
                if (obj["kind"], obj["metadata"]["name"]) == ("ConfigMap", CONFIG_MAP):
                    return parse_canonical(obj["data"][CONFIG_KEY])
        except (UnreadableRecord, InvalidCluster, NewerSchema, KeyError, TypeError):
            pass
        return None

    @cached_property
    def _records(self) -> tuple[Record, ...]:
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

    def _possible(self) -> list[dict[str, Any]]:
        """Return the objects that may be in the cluster, by name and kind.

        Of policies there may be more than any record names: a run that was killed before Helm's
        record has created those of its own stack file, which may have been another.
        """
        policies = (
            {"apiVersion": _POLICY_API, "kind": kind, "metadata": {"name": name}}
            for kind in _POLICIES
            for name in policy_names(self._namespace)
        )
        return [*self._recorded(), *policies]

    def _recorded(self) -> list[dict[str, Any]]:
        """Return the objects that records name: of a superseded one, none are left."""
        return [
            obj for record in self._records if not record.is_superseded for obj in record.objects
        ]

    def _desired(self, image: AgentImage) -> list[dict[str, Any]]:
        return chart_objects(self._stack.document, image.reference, installed_version())

    def _settle_records(self) -> None:
        """Make records of them from which Helm goes on.

        Pending ones have failed: whoever holds the Lease knows that nobody is at work on them.
        Objects of kinds that the cluster has lost are lost, too.
        """
        self.__dict__.pop("_records", None)
        names = {ObjectName.of(obj) for obj in self._recorded()}
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
        for record in self._records:
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

    def _write_chart(self, folder: Path, image: AgentImage) -> Path:
        version = installed_version()
        annotations = {
            STACK: self._stack.name,
            SOURCE: self._source(),
            DEPLOYER: deployer(),
            **image.annotations,
        }
        chart = Chart(self._stack.name, version, version, image.reference, None, annotations)
        for name, text in chart_files(self._stack.document, chart).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder

    def _source(self) -> str:
        revision = git_revision(self._stack.path.resolve())
        return f"{self._stack.path.name}{f' at {revision}' if revision else ', in no git'}"

    def _description(self) -> str:
        return f"divvy up -s {self._stack.name}: {self._source()}, by {deployer()}"

    def _alone(self) -> AbstractContextManager[HeldLease]:
        lease = Lease(_LEASE, self._namespace, _LASTS, _DEADLINE, _RENEW, _RETRY)
        holder = f"{deployer()} ({uuid.uuid4().hex[:8]})"
        return hold_lease(self._client, lease, holder, self._waiting)

    def _waiting(self, holder: str) -> None:
        self._report(f"waiting: {holder} deploys to namespace {self._namespace} now")

    def _live_namespace(self) -> dict[str, Any] | None:
        """Return the namespace, None if there is none, or one that is being deleted."""
        live = self._client.find(NAMESPACE.path("", self._namespace))
        return None if live is None or live["metadata"].get("deletionTimestamp") else live

    def _await_gone(self) -> None:
        """Wait until a namespace that is being deleted is gone; raises DeployError."""
        deadline = time.monotonic() + _GONE_SECONDS
        reported = False
        while (live := self._client.find(NAMESPACE.path("", self._namespace))) is not None:
            if not live["metadata"].get("deletionTimestamp"):
                return
            conditions = (live.get("status") or {}).get("conditions") or ()
            why = "; ".join(str(c.get("message")) for c in conditions if c.get("status") == "True")
            if time.monotonic() > deadline:
                raise DeployError(
                    f"namespace {self._namespace} is not gone after {_GONE_SECONDS:.0f} s"
                    f"{f': {why}' if why else ''}"
                )
            if not reported:
                self._report(f"waiting: namespace {self._namespace} is being deleted")
                reported = True
            time.sleep(_LOOK_SECONDS)

    def _wanted_namespace(self, live: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the namespace as it is applied: of somebody else's, only the level for pods."""
        own = next(
            obj for obj in objects(self._stack.document, "") if obj["kind"] == NAMESPACE.kind
        )
        if live is None or is_divvys(live):
            return own
        labels = {k: v for k, v in own["metadata"]["labels"].items() if k.startswith(_LEVEL)}
        return {**own, "metadata": {"name": self._namespace, "labels": labels}}

    def _namespace_change(self, live: Mapping[str, Any] | None) -> Change | None:
        wanted = self._wanted_namespace(live)
        if live is None:
            return Change(Action.CREATE, ObjectName.of(wanted))
        labels = live["metadata"].get("labels") or {}
        if all(labels.get(key) == value for key, value in wanted["metadata"]["labels"].items()):
            return None
        return Change(Action.UPDATE, ObjectName.of(wanted))

    def _ensure_namespace(self) -> None:
        self._await_gone()
        live = self._live_namespace()
        if live is None or self._namespace_change(live) is not None:
            self._apply_namespace(live, {})

    def _apply_namespace(self, live: Mapping[str, Any] | None, query: Mapping[str, str]) -> None:
        force = str(live is None or is_divvys(live)).lower()
        path, wanted = NAMESPACE.path("", self._namespace), self._wanted_namespace(live)
        query = {**query, "fieldManager": _MANAGER, "force": force}
        try:
            self._client.request("PATCH", path, wanted, kind=APPLY, query=query)
        except ApiError as error:
            if error.code != CONFLICT:
                raise
            raise DeployError(
                f"namespace {self._namespace} is somebody else's and has a Pod Security level that "
                f"admits no agent ({error}): choose another `namespace`, or set {_LEVEL}enforce "
                "to privileged there"
            ) from None


def _goes_with_namespace(obj: Mapping[str, Any]) -> bool:
    metadata = obj["metadata"]
    return (
        is_divvys(obj)
        or bool(metadata.get("deletionTimestamp"))
        or metadata["name"] in ("kube-root-ca.crt", KEPT_REPORT)
    )


def deployer() -> str:
    """Return who deploys: USER@HOST, or what CI says of itself."""
    for variable in ("GITHUB_ACTOR", "GITLAB_USER_LOGIN"):
        if name := os.environ.get(variable):
            return f"{name} (CI)"
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
