"""NodeRuntime: the step that prepares the container runtime of pools that ask for it."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster, Pool
from divvy.render.objects.atomic_values import variables_of_pod
from divvy.render.objects.roles import role

_NAME = "divvy-node-runtime"
_LOOK_SECONDS = 2
_DAY_SECONDS = 86_400


def node_runtime_objects(cluster: Cluster, image: Any) -> list[dict[str, Any]]:
    """Return account, rights and one DaemonSet per pool with ``runtime.configure``; else nothing.

    A DaemonSet of its own: entering the host's namespaces is a right that the agent
    does not need.
    """
    pools = {name: pool for name, pool in sorted(cluster.pools.items()) if pool.runtime.configure}
    if not pools:
        return []
    metadata = {"name": _NAME, "namespace": cluster.namespace, "labels": _labels()}
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    rule = {**leases, "resourceNames": [_NAME], "verbs": ["get", "update"]}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        # Made here and not by the first who needs it, so that it leaves with all else. And RBAC
        # cannot say which Leases an account may create: by one of the name that `divvy up` takes,
        # a stolen token would keep everybody from deploying.
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata},
        *role("Role", _NAME, cluster.namespace, _labels(), [rule]),
        *(_daemon_set(cluster, name, pool, image) for name, pool in pools.items()),
    ]


def _labels(pool: str | None = None) -> dict[str, str]:
    labels = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "node-runtime"}
    return labels if pool is None else {**labels, "divvy.gpu/pool": pool}


def _daemon_set(cluster: Cluster, name: str, pool: Pool, image: Any) -> dict[str, Any]:
    labels = _labels(name)
    fields = {"NODE_NAME": "spec.nodeName", "NAMESPACE": "metadata.namespace"}
    container = {
        "name": "node-runtime",
        "image": image,
        "command": ["/usr/bin/python3", "-m", "divvy.agent.node_runtime"],
        "env": [*variables_of_pod(fields), {"name": "RUNTIME", "value": pool.runtime.name}],
        # Ready once is ready for good, so the kubelet stops asking then. Its turn may be long in
        # coming: after a day the container starts again.
        "startupProbe": {
            "exec": {"command": ["test", "-e", "/tmp/ready"]},
            "periodSeconds": _LOOK_SECONDS,
            "failureThreshold": _DAY_SECONDS // _LOOK_SECONDS,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}, "limits": {"memory": "200Mi"}},
        # Privileged, and in the host's process namespace: it enters the host to restart containerd.
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "scratch", "mountPath": "/tmp"}],
    }
    pod: dict[str, Any] = {
        "serviceAccountName": _NAME,
        "priorityClassName": "system-node-critical",
        "hostPID": True,
        # A change that was begun ends with the runtime restarted or with its old files.
        "terminationGracePeriodSeconds": 180,
        "containers": [container],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
    }
    if pool.select is not None:
        pod["nodeSelector"] = dict(sorted(pool.select.items()))
    if pool.tolerations:
        pod["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True)
            for toleration in pool.tolerations
        ]
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in cluster.image_pull_secrets]
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {
            "name": f"{_NAME}-{name}",
            "namespace": cluster.namespace,
            "labels": labels,
        },
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
