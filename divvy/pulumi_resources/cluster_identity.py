"""The identity of a stack's cluster as a Pulumi resource: a run stops in any other cluster.

A kubeconfig is a path: what it leads to changes without a change of the stack. The uid that the
last run saw is in the state. ``check`` compares it with what the program sees, before all other
resources; ``read`` does where no program runs, in a refresh and before a destroy.
"""

from __future__ import annotations

from typing import Any

import pulumi
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)


class ClusterUnknown(Exception):
    """Whether it is the cluster of the last run is unknown, or it is another one; the text says."""


def cluster_uid(kubeconfig: str | None, context: str | None) -> str:
    """Return the uid of the namespace kube-system, which lives as long as its cluster.

    Raises ClusterUnknown.
    """
    # A check needs no client.
    from divvy.kube.client import Client  # noqa: PLC0415
    from divvy.kube.errors import KubeError  # noqa: PLC0415
    from divvy.kube.kind import NAMESPACE  # noqa: PLC0415
    from divvy.kube.kubeconfig import cluster_config  # noqa: PLC0415

    try:
        with Client(cluster_config(kubeconfig, context), is_patient=False) as client:
            return str(client.get(NAMESPACE.path("", "kube-system"))["metadata"]["uid"])
    except KubeError as error:
        raise ClusterUnknown(
            "whether this is the cluster of the last run is unknown, because the namespace "
            f"kube-system cannot be read: {error}"
        ) from None


class SameCluster(ResourceProvider):
    """Compares the cluster of each run with that of the last."""

    # A uid is no secret, and a secret would need a passphrase for every run.
    serialize_as_secret_always = False

    def check(self, olds: dict[str, Any], news: dict[str, Any]) -> CheckResult:
        """Refuse another cluster than that of the last run."""
        if olds.get("uid") in (None, news["uid"]):
            return CheckResult(news, [])
        return CheckResult(news, [CheckFailure("", _another(olds["uid"], news["uid"]))])

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Remember the cluster."""
        return CreateResult(props["uid"], props)

    def update(self, _id: str, _olds: dict[str, Any], news: dict[str, Any]) -> UpdateResult:
        """Remember the new way to the same cluster."""
        return UpdateResult(news)

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        """Look where the kubeconfig of the last run leads to now; raises ClusterUnknown."""
        uid = cluster_uid(props.get("kubeconfig"), props.get("context"))
        if uid != props["uid"]:
            raise ClusterUnknown(_another(props["uid"], uid))
        return ReadResult(id_, props)


def _another(before: str, now: str) -> str:
    return (
        f"the kubeconfig leads to another cluster (kube-system has uid {now}) than in the last run "
        f"({before}): choose the right context, or a stack of its own for this cluster. If the "
        "cluster was made again, let Pulumi forget the old one: pulumi stack rm --force "
        "--preserve-config, then pulumi stack init"
    )


class ClusterIdentity(Resource):
    """The cluster to which a kubeconfig led in the last run."""

    def __init__(
        self,
        name: str,
        kubeconfig: str | None,
        context: str | None,
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Raises ClusterUnknown."""
        props = {"kubeconfig": kubeconfig, "context": context}
        super().__init__(
            SameCluster(), name, {**props, "uid": cluster_uid(kubeconfig, context)}, opts
        )
