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
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from divvy.deploy.agent_image import AgentImage, agent_image, built
from divvy.deploy.changes import (
    PULUMI,
    Change,
    ObjectName,
    Release,
    removed,
)
from divvy.deploy.errors import DeployError
from divvy.deploy.helm import Helm, HelmFailed
from divvy.deploy.live_objects import (
    Preview,
    any_owned,
    create_missing,
    delete_owned,
    forget_manager,
    preview_objects,
    refused,
    whose,
)
from divvy.deploy.namespace import ReleaseNamespace
from divvy.deploy.records import (
    Record,
    UnreadableRecord,
)
from divvy.deploy.release_records import DEPLOYER, ReleaseRecords
from divvy.deploy.rights import missing_rights
from divvy.deploy.waiting import WORKLOADS
from divvy.kube.client import Client
from divvy.kube.errors import ApiError
from divvy.kube.kind import NAMESPACE
from divvy.kube.lease import HeldLease, Lease, hold_lease
from divvy.model import Cluster, ClusterDocument, InvalidCluster, NewerSchema, parse_canonical
from divvy.model.api_names import CONFIG_KEY, CONFIG_MAP, is_divvys
from divvy.render.chart import NAME, Chart, chart_files, chart_objects
from divvy.render.objects.policy_names import policy_names
from divvy.version_info import git_revision
from divvy.version_info import version as installed_version

_LEASE = "divvy-deploy"
_LASTS, _DEADLINE, _RENEW, _RETRY = 15, 10.0, 3.0, 1.0
_POLICY_API = "admissionregistration.k8s.io/v1"
_POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
STACK, SOURCE = "divvy.gpu/stack", "divvy.gpu/source"


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
        self._records = ReleaseRecords(client, self._namespace, report)
        self.namespace = ReleaseNamespace(client, stack.document, report)

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
        namespace = self.namespace.live()
        preview = preview_objects(
            self._client,
            release,
            desired,
            removed(self._possible(), desired),
            take_over=take_over,
            namespace_exists=namespace is not None,
        )
        own = self.namespace.change(namespace)
        if own is not None:
            preview = Preview((own,)) + preview
            try:
                self.namespace.apply(namespace, {"dryRun": "All"})
            except ApiError as error:
                preview += refused(own.name, error)
        try:
            preview += Preview(problems=tuple(missing_rights(self._client, self._namespace)))
        except ApiError as error:
            self._report(f"whether this user may write Helm's records is not known: {error}")
        return Look(
            release,
            deployed,
            self._records.newest,
            self.cluster_of(deployed),
            image,
            preview,
            self._former_stack(),
        )

    @property
    def deployed(self) -> Record | None:
        """Return the last deployed record, else the newest; None without any."""
        return self._records.deployed

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
        return any_owned(self._client, self.release, self.deletable())

    def deletable(self) -> list[ObjectName]:
        """Return the objects that `destroy` deletes where they are this release's."""
        return removed([*self._possible(), *self._desired(AgentImage(""))], [])

    def whose_agents(self) -> str | None:
        """Return who else has deployed the agents of the namespace, None if nobody has."""
        name = next(name for name in self.workloads(AgentImage("")) if name.kind == "DaemonSet")
        live = self._client.find(name.path)
        return None if live is None or self.release.owns(live) else whose(live)

    @cached_property
    def release(self) -> Release:
        """Return the release of Divvy's chart in the namespace, whatever its name is."""
        return self._records.release()

    def deploy(self, helm: Helm, look: Look, *, take_over: bool) -> AgentImage:
        """Bring the cluster to what the stack says; raises DeployError, HelmFailed, BuildFailed."""
        self.namespace.ensure()
        with self._alone() as turn:
            self._records.settle()
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
        with self._alone() if self.namespace.live() else nullcontext():
            self._records.settle()
            deletable = self.deletable()
            try:
                helm.uninstall(self.release)
            except HelmFailed:
                # It does not say which object it could not delete, nor why: the cluster does.
                delete_owned(self._client, self.release, deletable)
                helm.uninstall(self.release)
            return delete_owned(self._client, self.release, deletable)

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
        return [*self._records.objects(), *policies]

    def _desired(self, image: AgentImage) -> list[dict[str, Any]]:
        return chart_objects(self._stack.document, image.reference, installed_version())

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
