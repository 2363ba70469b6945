"""The Job that runs the conformance suite in a cluster, with its rights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from divvy.kube.kind import kind_named
from divvy.model import ClusterDocument
from divvy.model.api_names import KEPT_REPORT
from divvy.render.objects.cluster import objects
from divvy.render.objects.roles import role
from divvy.stack.keys import CLUSTER

NAME = "divvy-verify"
_RESULTS = "/tmp/results"
_PROGRAM = "divvy-verify-job"
# For a run that is told to end to undo what it has changed.
_CLEANING_UP_SECONDS = 300
# Of a stack file, where its cluster is: a pod is in it.
_WHERE = ("kubeconfig", "context")
# What the suite reads, makes and changes, beside reading what Divvy installs.
_RIGHTS: tuple[tuple[str, str, str], ...] = (
    ("", "nodes", "get list patch"),
    ("", "nodes/proxy", "get"),
    ("", "pods", "get list watch create delete"),
    ("", "pods/log", "get"),
    ("", "events", "list"),
    ("", "namespaces", "get list create patch delete"),
    ("", "serviceaccounts", "get"),
    ("coordination.k8s.io", "leases", "get list create patch"),
    ("scheduling.k8s.io", "priorityclasses", "list create delete"),
    ("resource.k8s.io", "resourceclaims", "get list create delete"),
    ("resource.k8s.io", "resourceslices", "list"),
    ("resource.k8s.io", "deviceclasses", "get list"),
    ("node.k8s.io", "runtimeclasses", "list"),
    ("discovery.k8s.io", "endpointslices", "list"),
)
# In Divvy's own namespace alone: the agents' pods are entered, and the report is kept.
_OWN_RIGHTS: tuple[tuple[str, str, str], ...] = (
    ("", "pods/exec", "get create"),
    ("", "configmaps", "create"),
)
# The agents' configuration, which is a ConfigMap of the same namespace, is none of its business.
_KEEPING: Mapping[str, Any] = {
    "apiGroups": [""],
    "resources": ["configmaps"],
    "resourceNames": [KEPT_REPORT],
    "verbs": ["get", "patch"],
}
_SECRETS = ("", "secrets", "create")


def stack_of_pod(document: ClusterDocument) -> str:
    """Return the stack file for a pod of the cluster: without where the cluster is."""
    value = {key: setting for key, setting in document.value.items() if key not in _WHERE}
    return yaml.safe_dump({"config": {CLUSTER: value}}, sort_keys=False, width=100)


def verify_job(
    document: ClusterDocument, stack: str, image: str, arguments: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a Job that runs the suite with these arguments, its account and its rights."""
    namespace = document.cluster.namespace
    labels = {"app.kubernetes.io/name": NAME}
    metadata = {"name": NAME, "namespace": namespace, "labels": labels}
    account = (NAME, namespace, labels)
    pull_secrets = document.cluster.image_pull_secrets
    rights = [*_RIGHTS, *([_SECRETS] if pull_secrets else [])]
    installed = objects(document, image)
    pod = {
        "serviceAccountName": NAME,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _CLEANING_UP_SECONDS,
        "imagePullSecrets": [{"name": name} for name in pull_secrets],
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                **_container(document, stack, image, arguments),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
                "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            }
        ],
        "volumes": [{"name": "results", "emptyDir": {}}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        *role("ClusterRole", *account, [*_rules(rights), *_reading(installed)]),
        *role("Role", *account, [*_rules(_OWN_RIGHTS), _KEEPING, *_pulling(pull_secrets)]),
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                # What has failed is read, not tried until it passes.
                "backoffLimit": 0,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    ]


def _container(
    document: ClusterDocument, stack: str, image: str, arguments: Sequence[str]
) -> dict[str, Any]:
    return {
        "name": NAME,
        "image": image,
        "args": [_verbatim(argument) for argument in arguments],
        "env": [
            {"name": "DIVVY_STACK", "value": _verbatim(stack)},
            {"name": "DIVVY_STACK_FILE", "value": _verbatim(stack_of_pod(document))},
        ],
        "volumeMounts": [{"name": "results", "mountPath": _RESULTS}],
    }


def _verbatim(text: str) -> str:
    """Return a text of which a kubelet makes what it is: it puts in variables, as $(NAME)."""
    return text.replace("$", "$$")


def _rules(rights: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs.split()}
        for group, resource, verbs in rights
    ]


def _pulling(secrets: Sequence[str]) -> list[dict[str, Any]]:
    """Return the right to copy the Secrets that the images are pulled with."""
    rule = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
    return [{**rule, "resourceNames": list(secrets)}] if secrets else []


def _reading(installed: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rights to read what Divvy installs, each object by its name."""
    names: dict[tuple[str, str], list[str]] = {}
    for obj in installed:
        group = obj["apiVersion"].rpartition("/")[0]
        resource = kind_named(obj["apiVersion"], obj["kind"]).plural
        names.setdefault((group, resource), []).append(obj["metadata"]["name"])
    return [
        {"apiGroups": [group], "resources": [resource], "resourceNames": sorted(set(own)),
         "verbs": ["get"]}
        for (group, resource), own in sorted(names.items())
    ]  # fmt: skip
