"""The dashboard's questions in PromQL, one per panel.

``$node`` is the dashboard's choice of nodes; the metrics are described in docs/agent.md.
"""

# From good to bad, as the agent orders them; a state's number is its place, from 1.
STATES = ("Ready", "Changing", "Waiting", "Blocked", "Degraded", "Failed")

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
# One physical GPU or MIG device, however many shares of it are out, is held once.
HELD_BY_MODE = f"count by (mode) (group by (mode, uuid) (divvy_device_held{{{_NODE}}}))"

PROFILES = f"divvy_node_profile{{{_NODE}}} * on (node) group_left (state) (divvy_node_state == 1)"
STATE_OF_GPU = " + ".join(
    f'sum by (node, gpu) (divvy_gpu_state{{{_NODE},state="{state}"}}) * {number}'
    for number, state in enumerate(STATES, 1)
)
IN_TRANSITION = (
    "sum by (node, state) (increase("
    f'divvy_gpu_state_seconds_total{{{_NODE},state=~"Changing|Waiting"}}[$__range])) > 0'
)

UTILISATION = f"DCGM_FI_DEV_GPU_UTIL{{{_HOST}}}"
MEMORY_USED = f"DCGM_FI_DEV_FB_USED{{{_HOST}}}"
TEMPERATURE = f"DCGM_FI_DEV_GPU_TEMP{{{_HOST}}}"
POWER = f"DCGM_FI_DEV_POWER_USAGE{{{_HOST}}}"

HOLDERS = f"divvy_device_held{{{_NODE}}}"
MEMORY_BY_POD = f"sum by (namespace, pod) (divvy_pod_memory_used_mib{{{_NODE}}})"
OVER_BY_POD = f"sum by (namespace, pod, resource) (divvy_memory_over_limit_mib{{{_NODE}}}) > 0"
