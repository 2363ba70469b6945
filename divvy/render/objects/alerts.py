"""Alert rules over the agent's metrics and kube-state-metrics, for Prometheus.

Each links to the heading of its name in docs/troubleshooting.md.
"""

from __future__ import annotations

import re
from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import AGENT, STATUS_ANNOTATION, TEMPLATE_MAKER, State
from divvy.model.resource_names import qualified

_DAEMON_SET = f'{{daemonset="{AGENT}"}}'
_USUAL_RESOURCES = "nvidia_com_(gpu|mig).*"


def alert_groups(cluster: Cluster, generation: str) -> list[dict[str, Any]]:
    """Return the rule groups; ``generation`` is the configuration that nodes should follow."""
    rules = [*_health(generation), *_agents(), *_pods(cluster)]
    if cluster.claims:
        rules += _controllers()
    if any(rule.mps for profile in cluster.profiles.values() for rule in profile.rules):
        rules += _daemons()
    for rule in rules:
        url = f"{cluster.observability.runbooks}#{rule['alert'].lower()}"
        rule["annotations"]["runbook_url"] = url
    return [{"name": "divvy", "rules": rules}]


def pending(cluster: Cluster) -> str:
    """Return the expression for pods that request GPUs and have no node."""
    requests = f'kube_pod_container_resource_requests{{resource=~"{_resources(cluster)}"}}'
    return (
        "kube_pod_status_unschedulable == 1"
        f" and on (namespace, pod) max by (namespace, pod) ({requests}) > 0"
    )


def _resources(cluster: Cluster) -> str:
    """Return a pattern of the resources of GPUs, in the signs that kube-state-metrics leaves."""
    names = {cluster.names.gpu}
    for profile in cluster.profiles.values():
        for rule in profile.rules:
            if rule.sharing is not None and rule.sharing.resource_name is not None:
                names.add(qualified(rule.sharing.resource_name))
    labels = {re.sub("[^a-zA-Z0-9_]", "_", name) for name in names}
    renamed = sorted(label for label in labels if not re.match(_USUAL_RESOURCES, label))
    return "|".join((_USUAL_RESOURCES, *renamed))


def _health(generation: str) -> tuple[dict[str, Any], ...]:
    return (
        _alert(
            "DivvyGpuUnhealthy",
            f'divvy_gpu_state{{state="{State.DEGRADED}"}} == 1',
            "2m",
            "warning",
            "GPU {{ $labels.gpu }} of {{ $labels.node }} is unhealthy",
            "Its devices are withdrawn; pods that hold them were left alone. The reason is "
            f"in the node's annotation {STATUS_ANNOTATION}.",
        ),
        _alert(
            "DivvyProfileNotApplied",
            f'divvy_gpu_state{{state=~"{State.BLOCKED}|{State.FAILED}"}} == 1',
            "5m",
            "warning",
            "GPU {{ $labels.gpu }} of {{ $labels.node }} keeps its old layout",
            f"{State.BLOCKED}: a pod or process held it until change.deadline. "
            f"{State.FAILED}: the driver refused. The reason is in the node's "
            f"annotation {STATUS_ANNOTATION}.",
        ),
        _alert(
            "DivvyChangeWaiting",
            f'divvy_gpu_state{{state="{State.WAITING}"}} == 1',
            "1h",
            "info",
            "GPU {{ $labels.gpu }} of {{ $labels.node }} waits to be reconfigured",
            "A pod or process holds it, so its devices from the stack file are not offered. `divvy "
            "status` names who holds it.",
        ),
        _alert(
            "DivvyNodeOnOldConfiguration",
            f'divvy_node_profile{{generation!="{generation}"}}',
            "5m",
            "warning",
            "{{ $labels.node }} follows an old configuration",
            "Its agent has not received the latest one, or has refused it; the reason is "
            f"in the node's annotation {STATUS_ANNOTATION}.",
        ),
    )


def _agents() -> tuple[dict[str, Any], ...]:
    return (
        _alert(
            "DivvyAgentAbsent",
            f"kube_daemonset_status_number_unavailable{_DAEMON_SET} > 0"
            f' or count(up{{job="{AGENT}"}} == 0) > 0',
            "10m",
            "warning",
            "{{ $value }} agents of Divvy do not run or do not answer",
            "Pods keep their devices, but new ones get none on these nodes, and no other alert of "
            "Divvy can fire for them. `divvy status` says which nodes and why.",
        ),
        _alert(
            "DivvyRolloutStuck",
            f"kube_daemonset_status_desired_number_scheduled{_DAEMON_SET}"
            f" - kube_daemonset_status_updated_number_scheduled{_DAEMON_SET} > 0",
            "30m",
            "warning",
            "{{ $value }} agents of Divvy run an earlier release",
            "The rollout of a new agent does not end: a new pod does not become ready, or nodes "
            "are down. `divvy status` says which.",
        ),
    )


def _pods(cluster: Cluster) -> tuple[dict[str, Any], ...]:
    return (
        _alert(
            "DivvyGpuPodPending",
            pending(cluster),
            "15m",
            "info",
            "{{ $labels.namespace }}/{{ $labels.pod }} waits for a GPU",
            "No node has the devices that it requests. `divvy why POD -n NAMESPACE` says what is "
            "in the way, and who holds it.",
        ),
        _alert(
            "DivvyMemoryOverShare",
            "divvy_memory_over_limit_mib > 0",
            "1m",
            "warning",
            "{{ $labels.namespace }}/{{ $labels.pod }} uses more GPU memory than its limit",
            "{{ $value }} MiB more than the memoryLimit of its {{ $labels.resource }} on "
            "{{ $labels.node }}: other pods on the GPU may run out of memory.",
        ),
        _alert(
            "DivvyShareRefusesMemory",
            "delta(divvy_share_refusals[10m]) > 10",
            "10m",
            "info",
            "{{ $labels.namespace }}/{{ $labels.pod }} asks for more GPU memory than its share",
            "The limiter refused {{ $value }} allocations in 10 minutes on {{ $labels.node }}: the "
            "program retries, or its share is too small.",
        ),
        _alert(
            "DivvyShareKeepsNoTurns",
            "delta(divvy_share_gate_opened[5m]) > 5",
            "5m",
            "warning",
            "A share next to {{ $labels.namespace }}/{{ $labels.pod }} exceeds its time share",
            "The limiter of this pod on {{ $labels.node }} stopped waiting for another "
            "share {{ $value }} times in 5 minutes: a program on the same GPU claims its "
            "turn and does not use it, or its kernels take long.",
        ),
    )


def _controllers() -> tuple[dict[str, Any], ...]:
    deployment = f'{{deployment="{TEMPLATE_MAKER}"}}'
    return (
        _alert(
            "DivvyControllerAbsent",
            f"kube_deployment_status_replicas_available{deployment} < 1",
            "10m",
            "warning",
            "{{ $labels.deployment }} does not run",
            "Until it runs again, new pods by size wait. Running pods keep their devices. "
            "`kubectl describe deployment` says why.",
        ),
    )


def _daemons() -> tuple[dict[str, Any], ...]:
    return (
        _alert(
            "DivvyMpsDaemonDown",
            "divvy_mps_daemon_ready == 0",
            "1m",
            "warning",
            "The MPS daemon of a GPU of {{ $labels.node }} does not answer",
            "The shares of GPU {{ $labels.uuid }} are withdrawn, and its pods' CUDA contexts may "
            f"be lost. The reason is in the node's annotation {STATUS_ANNOTATION}.",
        ),
    )


def _alert(
    name: str, expression: str, lasting: str, severity: str, summary: str, description: str
) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": lasting,
        "labels": {"severity": severity},
        "annotations": {"summary": summary, "description": description},
    }
