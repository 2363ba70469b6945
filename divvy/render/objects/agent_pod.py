"""The agent's DaemonSet: what it mounts, and why."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    AGENT,
    METRICS_PORT,
    PLUGIN_FOLDER,
    REGISTRY_FOLDER,
    RUN_FOLDER,
    Component,
    component_labels,
)
from divvy.model.stack import tolerations_of
from divvy.render.objects.atomic_values import variables_of_pod
from divvy.render.objects.probes import probes

_LABELS = component_labels(Component.AGENT)


def agent_daemon_set(cluster: Cluster, image: Any) -> dict[str, Any]:
    """Return the DaemonSet that runs one agent on every node of the pools.

    No profile or layout is part of it: a change of the stack file never restarts
    an agent, only a change of image, of the driver's place, of the pools' labels, or the
    first ``memoryLimit``, ``devices`` or ``claims`` (and the last), for which it sees more of the
    host.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": AGENT, "namespace": cluster.namespace, "labels": _LABELS},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            # Two agents must never serve one resource at once: the old one goes first.
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"},
            },
            "template": {
                "metadata": {
                    "labels": _LABELS,
                    "annotations": {
                        "prometheus.io/scrape": "true",
                        "prometheus.io/port": str(METRICS_PORT),
                    },
                },
                "spec": _pod(cluster, image),
            },
        },
    }


def _pod(cluster: Cluster, image: Any) -> dict[str, Any]:
    pod: dict[str, Any] = {
        "serviceAccountName": AGENT,
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 5,
        "containers": [_container(cluster, image)],
        "volumes": _volumes(cluster),
    }
    if _watches_memory(cluster):
        # NVML names a GPU's processes by host PID; only so can their containers be found.
        pod["hostPID"] = True
    affinity = _affinity(cluster)
    if affinity:
        pod["affinity"] = affinity
    if tolerations := tolerations_of(pool for _, pool in sorted(cluster.pools.items())):
        pod["tolerations"] = tolerations
    if cluster.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in cluster.image_pull_secrets]
    return pod


def _container(cluster: Cluster, image: Any) -> dict[str, Any]:
    fields = {
        "NODE_NAME": "spec.nodeName",
        "NAMESPACE": "metadata.namespace",
        "POD_NAME": "metadata.name",
    }
    return {
        "name": "agent",
        "image": image,
        "env": [
            *variables_of_pod(fields),
            {"name": "DIVVY_HOST_DRIVER_ROOT", "value": cluster.driver.root},
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
        **probes(),
        "resources": {
            "requests": {"cpu": "20m", "memory": "100Mi"},
            "limits": {"memory": "300Mi"},
        },
        # Privileged for the GPU device nodes (the device cgroup) and for MIG changes.
        "securityContext": {"privileged": True, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            # Not recursiveReadOnly: it is admitted only without propagation, by which the agent
            # sees a driver that is mounted after its start.
            {
                "name": "driver",
                "mountPath": "/driver-root",
                "readOnly": True,
                "mountPropagation": "HostToContainer",
            },
            {"name": "driver-dev", "mountPath": "/driver-root/dev"},
            {"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
            {
                "name": "pod-resources",
                "mountPath": "/var/lib/kubelet/pod-resources",
                "readOnly": True,
            },
            {"name": "cdi", "mountPath": "/var/run/cdi"},
            # Mounted at its own path: the hook that is installed there runs on the host.
            {"name": "state", "mountPath": "/var/lib/divvy"},
            {"name": "containerd", "mountPath": "/host-containerd", "readOnly": True},
            *(
                {"name": name, "mountPath": mount, "readOnly": True}
                for name, (_, mount) in _where_needed(cluster).items()
            ),
            *({"name": name, "mountPath": path} for name, path in _sockets(cluster).items()),
            # What it mounts there, containers are to be given: by the host.
            *(
                {"name": name, "mountPath": path, "mountPropagation": "Bidirectional"}
                for name, path in _mounted(cluster).items()
            ),
        ],
    }


def _volumes(cluster: Cluster) -> list[dict[str, Any]]:
    root = cluster.driver.root.rstrip("/")
    paths = {
        "driver": root or "/",
        "driver-dev": f"{root}/dev",
        "device-plugins": "/var/lib/kubelet/device-plugins",
        "pod-resources": "/var/lib/kubelet/pod-resources",
        "cdi": "/var/run/cdi",
        "state": "/var/lib/divvy",
        "containerd": "/etc/containerd",
        **{name: host for name, (host, _) in _where_needed(cluster).items()},
        **_sockets(cluster),
        **_mounted(cluster),
    }
    return [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in paths.items()
    ]


def _where_needed(cluster: Cluster) -> dict[str, tuple[str, str]]:
    """Return name → host path and mount path of what only some clusters give the agent."""
    mounts = {}
    if cluster.devices:
        mounts["host-dev"] = ("/dev", "/host-dev")
    if _watches_memory(cluster):
        mounts["container-logs"] = ("/var/log/containers", "/var/log/containers")
    return mounts


def _sockets(cluster: Cluster) -> dict[str, str]:
    """Return name → folder of the sockets by which the kubelet finds a driver of claims."""
    if not cluster.claims:
        return {}
    return {"claims-driver": PLUGIN_FOLDER, "plugin-registry": REGISTRY_FOLDER}


def _mounted(cluster: Cluster) -> dict[str, str]:
    """Return name → folder below which the agent makes a file system."""
    return {"shares": RUN_FOLDER} if _watches_memory(cluster) or _has_mps(cluster) else {}


def _has_mps(cluster: Cluster) -> bool:
    rules = (rule for profile in cluster.profiles.values() for rule in profile.rules)
    return any(rule.mps for rule in rules)


def _watches_memory(cluster: Cluster) -> bool:
    rules = [rule for profile in cluster.profiles.values() for rule in profile.rules]
    return any(
        (rule.sharing and rule.sharing.memory_limit) or (rule.claims and rule.claims.shares)
        for rule in rules
    )


def _affinity(cluster: Cluster) -> dict[str, Any] | None:
    """Return node affinity for the pools' labels, None if a pool takes any GPU node."""
    pools = [pool for _, pool in sorted(cluster.pools.items())]
    if any(pool.select is None for pool in pools):
        return None
    terms = [
        {
            "matchExpressions": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in sorted((pool.select or {}).items())
            ]
        }
        for pool in pools
    ]
    required = {"nodeSelectorTerms": terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
