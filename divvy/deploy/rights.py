"""What a deployment writes beside its objects, and whether this user may."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from divvy.kube.client import Client
from divvy.kube.kind import LEASE, SECRET

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
# The turn of a run, and Helm's records, of which it deletes the oldest.
_WRITTEN = {LEASE: ("get", "create", "update"), SECRET: ("create", "update", "delete")}


def missing_rights(client: Client, namespace: str) -> Iterator[str]:
    """Yield what this user may not do in a namespace, which may not exist yet."""
    for kind, verbs in _WRITTEN.items():
        group = kind.api_version.rpartition("/")[0]
        for verb in verbs:
            asked = {
                "group": group,
                "resource": kind.plural,
                "namespace": namespace,
                "verb": verb,
            }
            review: dict[str, Any] = client.request(
                "POST",
                _REVIEWS,
                {
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SelfSubjectAccessReview",
                    "spec": {"resourceAttributes": asked},
                },
            )
            if not review["status"]["allowed"]:
                yield f"this user may not {verb} {kind.plural} in namespace {namespace}"
