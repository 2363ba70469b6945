"""The dashboard's questions in PromQL, one per panel.

``$node`` is the dashboard's choice of nodes; the metrics are described in docs/agent.md.
"""

from divvy.model.api_names import State

NODES = "label_values(divvy_node_profile, node)"

_NODE = 'node=~"$node"'
_HOST = 'hostname=~"$node"'

NODES_BY_STATE = f"sum by (state) (divvy_node_state{{{_NODE}}}) > 0"
GPUS_BY_STATE = f"sum by (state) (divvy_gpu_state{{{_NODE}}}) > 0"
OFFERED = f'sum(divvy_devices{{{_NODE},healthy="true"}})'
HELD = f"count(divvy_device_held{{{_NODE}}}) or vector(0)"
UNHEALTHY = f'sum(divvy_devices{{{_NODE},healthy="false"}})'
OVER_SHARE = f"count(divvy_memory_over_limit_mib{{{_NODE}}} > 0) or vector(0)"

OFFERED_BY_RESOURCE = f'sum by (resource) (divvy_devices{{{_NODE},healthy="true"}})'
HELD_BY_RESOURCE = f"count by (resource) (divvy_device_held{{{_NODE}}})"
# One physical GPU or MIG device, however many replicas of it are out, is held once.
HELD_BY_MODE = f"count by (mode) (group by (mode, uuid) (divvy_device_held{{{_NODE}}}))"

PROFILES = f"divvy_node_profile{{{_NODE}}} * on (node) group_left (state) (divvy_node_state == 1)"
# A state's number is its place from good to bad, from 1.
STATE_OF_GPU = " + ".join(
    f'sum by (node, gpu) (divvy_gpu_state{{{_NODE},state="{state}"}}) * {number}'
    for number, state in enumerate(State, 1)
)
_TRANSITION = f'state=~"{State.CHANGING}|{State.WAITING}"'
IN_TRANSITION = (
    "sum by (node, state) (increase("
    f"divvy_gpu_state_seconds_total{{{_NODE},{_TRANSITION}}}[$__range])) > 0"
)

UTILISATION = f"DCGM_FI_DEV_GPU_UTIL{{{_HOST}}}"
MEMORY_USED = f"DCGM_FI_DEV_FB_USED{{{_HOST}}}"
TEMPERATURE = f"DCGM_FI_DEV_GPU_TEMP{{{_HOST}}}"
POWER = f"DCGM_FI_DEV_POWER_USAGE{{{_HOST}}}"

_BY_POD = "sum by (namespace, pod)"
SHARE_USED = f"{_BY_POD} (divvy_share_memory_used_mib{{{_NODE}}})"
SHARE_LIMIT = f"{_BY_POD} (divvy_share_memory_limit_mib{{{_NODE}}})"
SHARE_REFUSALS = f"{_BY_POD} (delta(divvy_share_refusals{{{_NODE}}}[5m]))"
SHARE_WAITED = f"{_BY_POD} (deriv(divvy_share_waited_seconds{{{_NODE}}}[5m]))"
SHARE_GATE_OPENED = f"{_BY_POD} (delta(divvy_share_gate_opened{{{_NODE}}}[5m]))"

ALLOCATED = f"sum by (namespace) (divvy_allocated_cores{{{_NODE}}}) / 100"
MEMORY_ALLOCATED = f"sum(divvy_allocated_memory_mib{{{_NODE}}})"
ALL_MEMORY_USED = f"sum({MEMORY_USED})"
# A sample stands for a minute.
_SUM = "sum by (namespace, kind) (sum_over_time({}[$__range:1m]))"
GPU_HOURS = f"{_SUM.format(f'divvy_allocated_cores{{{_NODE}}}')} / 60 / 100"
MEMORY_HOURS = f"{_SUM.format(f'divvy_allocated_memory_mib{{{_NODE}}}')} / 60 / 1024"

HOLDERS = f"divvy_device_held{{{_NODE}}}"
MEMORY_BY_POD = f"sum by (namespace, pod) (divvy_pod_memory_used_mib{{{_NODE}}})"
UTILISATION_BY_CONTAINER = f"divvy_container_gpu_utilisation{{{_NODE}}}"
OVER_BY_POD = f"sum by (namespace, pod, resource) (divvy_memory_over_limit_mib{{{_NODE}}}) > 0"

CLAIMS_BY_USE = f"sum by (use) (divvy_claims_gpu_use{{{_NODE}}})"
CLAIMS_BY_TENANT = f"sum by (tenant) (divvy_claims_of_tenant{{{_NODE}}})"
CLAIMS_FREE_MEMORY = f"divvy_claims_memory_free_mib{{{_NODE}}}"
CLAIMS_FREE_CORES = f"divvy_claims_cores_free{{{_NODE}}}"
_PREPARED = f"sum by (le) (rate(divvy_claims_prepare_seconds_bucket{{{_NODE}}}[5m]))"
CLAIMS_PREPARED_HALF = f"histogram_quantile(0.5, {_PREPARED})"
CLAIMS_PREPARED_MOST = f"histogram_quantile(0.95, {_PREPARED})"
