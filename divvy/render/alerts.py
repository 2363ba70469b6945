"""Alert rules over the agent's metrics, for Prometheus."""

from __future__ import annotations

from typing import Any

from divvy.model.contract import STATUS_ANNOTATION, State


def alert_groups(generation: str) -> list[dict[str, Any]]:
    """Return the rule groups; ``generation`` is the configuration that nodes should follow."""
    return [
        {
            "name": "divvy",
            "rules": [
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
                    "DivvyNodeOnOldConfiguration",
                    f'divvy_node_profile{{generation!="{generation}"}}',
                    "5m",
                    "warning",
                    "{{ $labels.node }} follows an old configuration",
                    "Its agent has not received the latest one, or has refused it; the reason is "
                    f"in the node's annotation {STATUS_ANNOTATION}.",
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
                    "DivvyShareKeepsNoTurns",
                    "delta(divvy_share_gate_opened[5m]) > 5",
                    "5m",
                    "warning",
                    "A share beside {{ $labels.namespace }}/{{ $labels.pod }} keeps no turns",
                    "The limiter of this pod on {{ $labels.node }} stopped waiting for another "
                    "share {{ $value }} times in 5 minutes: a program on the same GPU claims its "
                    "turn and does not use it, or its kernels take long.",
                ),
            ],
        }
    ]


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
