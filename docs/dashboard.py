"""The Grafana dashboard, which it builds with Grafana's typed SDK.

``$node`` in its queries is the reader's choice of nodes; docs/agent.md describes the metrics.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

from grafana_foundation_sdk.builders import common as common_parts
from grafana_foundation_sdk.builders import (
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableOption,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from divvy.model.api_names import State

_NODE = 'node=~"$node"'
_HOST = 'hostname=~"$node"'
# A state's number is its place from good to bad, from 1.
_STATE_OF_GPU = " + ".join(
    f'sum by (node, gpu) (divvy_gpu_state{{{_NODE},state="{state}"}}) * {number}'
    for number, state in enumerate(State, 1)
)
_TRANSITION = f'state=~"{State.CHANGING}|{State.WAITING}"'
_IN_TRANSITION = (
    "sum by (node, state) (increase("
    f"divvy_gpu_state_seconds_total{{{_NODE},{_TRANSITION}}}[$__range])) > 0"
)
_POD = "{{namespace}}/{{pod}}"
_OFFERED = f'divvy_devices{{{_NODE},healthy="true"}}'
_IN_USE = f"group by (mode, uuid) (divvy_device_held{{{_NODE}}})"
_COMPUTING = f"divvy_container_gpu_utilisation{{{_NODE}}}"
_OVER = f"divvy_memory_over_limit_mib{{{_NODE}}}"
_BY_POD = "sum by (namespace, pod)"
# A sample stands for a minute.
_SUM = "sum by (namespace, kind) (sum_over_time({}[$__range:1m]))"
_PREPARED = f"sum by (le) (rate(divvy_claims_prepare_seconds_bucket{{{_NODE}}}[5m]))"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLOURS = dict(zip(State, ("green", "blue", "yellow", "orange", "red", "dark-red"), strict=True))
_HIDDEN_COLUMNS = (
    "Time",
    "Value",
    "__name__",
    "instance",
    "job",
    "endpoint",
    "service",
    "container",
)


def dashboard_page() -> str:
    """Return the dashboard's JSON; the same bytes every time."""
    whole = (
        dashboard.Dashboard("Divvy: GPU sharing")
        .uid("divvy-gpu-sharing")
        .description("Who shares which GPU how, from the cluster down to the device.")
        .tags(["divvy", "gpu"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(
            dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus")
        )
        .with_variable(
            dashboard.QueryVariable("node")
            .label("Node")
            .datasource(_SOURCE)
            .query("label_values(divvy_node_profile, node)")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .multi(True)
            .include_all(True)
            .all_value(".+")
            .current(VariableOption(selected=True, text="All", value="$__all"))
        )
    )
    numbers = count(1)
    for title, panels in _rows():
        whole = whole.with_row(dashboard.Row(title).id(next(numbers)))
        for panel in panels:
            whole = whole.with_panel(panel.id(next(numbers)))
    plain = json.loads(JSONEncoder(sort_keys=True).encode(whole.build()))
    return json.dumps(plain, indent=1, sort_keys=True) + "\n"


def _rows() -> Iterator[tuple[str, list[Any]]]:
    yield (
        "Cluster",
        [
            _states(
                "Nodes",
                "The worst state on a node is the node's.",
                f"sum by (state) (divvy_node_state{{{_NODE}}}) > 0",
            ),
            _states("GPUs", "GPUs by state.", f"sum by (state) (divvy_gpu_state{{{_NODE}}}) > 0"),
            _number(
                "Devices advertised",
                "Healthy devices of all resources.",
                f"sum({_OFFERED})",
            ),
            _number(
                "Devices held",
                "Devices that a container holds.",
                f"count(divvy_device_held{{{_NODE}}}) or vector(0)",
            ),
            _alarm(
                "Unhealthy devices",
                "Withdrawn until no error has occurred for health.recoverAfter.",
                f'sum(divvy_devices{{{_NODE},healthy="false"}})',
            ),
            _alarm(
                "Pods over their limit",
                "Pods that use more memory than the memoryLimit of their replicas.",
                f"count({_OVER} > 0) or vector(0)",
            ),
            _lines(
                "Held of advertised, by resource",
                "Dashed: advertised. Solid: held.",
                {
                    f"count by (resource) (divvy_device_held{{{_NODE}}})": "{{resource}}",
                    f"sum by (resource) ({_OFFERED})": "{{resource}} advertised",
                },
                "short",
            ).override_by_regexp("/ advertised$/", [_dashed()]),
            _lines(
                "Shared against exclusive",
                "GPUs and MIG devices in use, by mode; many replicas of one device count once.",
                {f"count by (mode) ({_IN_USE})": "{{mode}}"},
                "short",
            )
            .stacking(common_parts.StackingConfig().mode(common.StackingMode.NORMAL))
            .fill_opacity(40),
        ],
    )
    yield (
        "Nodes",
        [
            _listing(
                "Profiles",
                "What each node follows; a source other than the pool bypasses the stack file.",
                f"divvy_node_profile{{{_NODE}}} "
                "* on (node) group_left (state) (divvy_node_state == 1)",
                ["node", "pool", "profile", "source", "state", "generation"],
            ),
            _lines(
                "Time in transition",
                "Seconds in the range that GPUs spent being reconfigured (Changing) or "
                "waiting for pods (Waiting).",
                {_IN_TRANSITION: "{{node}} {{state}}"},
                "s",
            ),
        ],
    )
    yield (
        "GPUs",
        [
            _timeline("State of each GPU", _STATE_OF_GPU),
            _lines(
                "Utilisation",
                "Share of time in which a kernel ran; not reported in MIG mode.",
                {f"DCGM_FI_DEV_GPU_UTIL{{{_HOST}}}": "{{hostname}} {{gpu}}"},
                "percent",
            ).max(100),
            _lines(
                "Memory in use",
                "Of the whole GPU.",
                {f"DCGM_FI_DEV_FB_USED{{{_HOST}}}": "{{hostname}} {{gpu}}"},
                "mbytes",
            ),
            _lines(
                "Temperature",
                "",
                {f"DCGM_FI_DEV_GPU_TEMP{{{_HOST}}}": "{{hostname}} {{gpu}}"},
                "celsius",
            ),
            _lines(
                "Power",
                "",
                {f"DCGM_FI_DEV_POWER_USAGE{{{_HOST}}}": "{{hostname}} {{gpu}}"},
                "watt",
            ),
        ],
    )
    yield (
        "Devices",
        [
            _listing(
                "Who holds what",
                "Every held device and its container.",
                f"divvy_device_held{{{_NODE}}}",
                ["namespace", "pod", "container", "resource", "mode", "device", "node"],
            ),
            _lines(
                "Memory by pod",
                "Whole GPUs and MIG devices: what is in use is their pod's. Shares of one "
                "device cannot be distinguished here.",
                {f"sum by (namespace, pod) (divvy_pod_memory_used_mib{{{_NODE}}})": _POD},
                "mbytes",
            ),
            _lines(
                "GPU time by container",
                "Per cent of the GPU's time, also of shares; the driver counts none in MIG "
                "mode, and agents see no processes of others: it is there only where a rule "
                "has memoryLimit, mps or claims with shares.",
                {_COMPUTING: f"{_POD} {{{{container}}}} {{{{gpu}}}}"},
                "percent",
            ).max(100),
            _lines(
                "Memory over the limit",
                "By how much a pod exceeds the memoryLimit of its replicas.",
                {f"sum by (namespace, pod, resource) ({_OVER}) > 0": f"{_POD} {{{{resource}}}}"},
                "mbytes",
            ),
        ],
    )
    yield (
        "Teams",
        [
            _lines(
                "GPUs allocated, by namespace",
                "A MIG device counts by its compute slices, a share by its part of the GPU.",
                {f"sum by (namespace) (divvy_allocated_cores{{{_NODE}}}) / 100": "{{namespace}}"},
                "short",
            )
            .stacking(common_parts.StackingConfig().mode(common.StackingMode.NORMAL))
            .fill_opacity(40),
            _lines(
                "GPU memory allocated and used",
                "`divvy advise` says which profile would leave less of it unused.",
                {
                    f"sum(divvy_allocated_memory_mib{{{_NODE}}})": "allocated",
                    f"sum(DCGM_FI_DEV_FB_USED{{{_HOST}}})": "used",
                },
                "mbytes",
            ),
            _listing(
                "GPU hours in the range",
                "Allocated, whether used or not; an hour of half a GPU is half a GPU hour.",
                f"{_SUM.format(f'divvy_allocated_cores{{{_NODE}}}')} / 60 / 100",
                ["namespace", "kind", "Value"],
            ),
            _listing(
                "GiB hours in the range",
                "GPU memory allocated, whether used or not.",
                f"{_SUM.format(f'divvy_allocated_memory_mib{{{_NODE}}}')} / 60 / 1024",
                ["namespace", "kind", "Value"],
            ),
        ],
    )
    yield (
        "Limited shares",
        [
            _lines(
                "Memory of limited shares",
                "Solid: in use, as the limiter in the pod counts it. Dashed: the limit.",
                {
                    f"{_BY_POD} (divvy_share_memory_used_mib{{{_NODE}}})": _POD,
                    f"{_BY_POD} (divvy_share_memory_limit_mib{{{_NODE}}})": f"{_POD} limit",
                },
                "mbytes",
            ).override_by_regexp("/ limit$/", [_dashed()]),
            _lines(
                "Refused requests for memory",
                "In the last five minutes: the pod asked for more than its share has.",
                {f"{_BY_POD} (delta(divvy_share_refusals{{{_NODE}}}[5m]))": _POD},
                "short",
            ),
            _lines(
                "Waiting for a turn",
                "Seconds per second that launches wait while other shares have their turns.",
                {f"{_BY_POD} (deriv(divvy_share_waited_seconds{{{_NODE}}}[5m]))": _POD},
                "s",
            ),
            _lines(
                "Turns taken from others",
                "In the last five minutes: launches let through because another share claimed "
                "a turn and did not use it.",
                {f"{_BY_POD} (delta(divvy_share_gate_opened{{{_NODE}}}[5m]))": _POD},
                "short",
            ),
        ],
    )
    yield (
        "Claims",
        [
            _lines(
                "GPUs by use",
                "GPUs that are served by claims: whole, by shares, as MIG devices, free.",
                {f"sum by (use) (divvy_claims_gpu_use{{{_NODE}}})": "{{use}}"},
                "short",
            )
            .stacking(common_parts.StackingConfig().mode(common.StackingMode.NORMAL))
            .fill_opacity(40),
            _lines(
                "Claims by tenant",
                "Claims that are held; those without a tenant together.",
                {f"sum by (tenant) (divvy_claims_of_tenant{{{_NODE}}})": "{{tenant}}"},
                "short",
            ),
            _lines(
                "Free memory by GPU",
                "Available to claims; 0 for GPUs allocated whole.",
                {f"divvy_claims_memory_free_mib{{{_NODE}}}": "{{node}} {{gpu}}"},
                "mbytes",
            ),
            _lines(
                "Free compute time by GPU",
                "Available to claims, in per cent of the GPU's compute time.",
                {f"divvy_claims_cores_free{{{_NODE}}}": "{{node}} {{gpu}}"},
                "percent",
            ).max(100),
            _lines(
                "Preparing a claim",
                "Seconds until half, and 95 of 100 claims were prepared, in the last five minutes.",
                {
                    f"histogram_quantile(0.5, {_PREPARED})": "half",
                    f"histogram_quantile(0.95, {_PREPARED})": "95 %",
                },
                "s",
            ),
        ],
    )


def _query(expression: str, legend: str = "") -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .datasource(_SOURCE)
        .expr(expression)
        .legend_format(legend)
        .ref_id("A")
    )


def _common(panel: Any, title: str, description: str, width: int, height: int) -> Any:
    panel = panel.title(title).datasource(_SOURCE).span(width).height(height)
    return panel.description(description) if description else panel


def _number(title: str, description: str, expression: str) -> Any:
    """Return a panel with one number."""
    panel = stat.Panel().with_target(_query(expression, title).instant())
    return _common(panel, title, description, 4, 5)


def _alarm(title: str, description: str, expression: str) -> Any:
    """Return a panel with a number that is red from 1 on."""
    steps = [Threshold(value=None, color="green"), Threshold(value=1, color="red")]
    limits = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    return _number(title, description, expression).thresholds(limits)


def _states(title: str, description: str, expression: str) -> Any:
    """Return a panel with a number for each state."""
    panel = stat.Panel().with_target(_query(expression, "{{state}}").instant())
    panel = panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    for state, colour in _COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(state, [DynamicConfigValue(id_val="color", value=fixed)])
    return _common(panel, title, description, 4, 5)


def _lines(title: str, description: str, expressions: dict[str, str], unit: str) -> Any:
    """Return a panel of lines over time, by their queries and legends."""
    panel = timeseries.Panel().unit(unit).min(0).fill_opacity(5)
    for number, (expression, legend) in enumerate(expressions.items()):
        panel = panel.with_target(_query(expression, legend).range().ref_id(chr(65 + number)))
    return _common(panel, title, description, 12, 8)


def _dashed() -> DynamicConfigValue:
    """Return what makes a line dashed."""
    return DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]})


def _timeline(title: str, expression: str) -> Any:
    """Return a panel of the states of each GPU over time."""
    names: dict[str, ValueMappingResult] = {
        str(number): ValueMappingResult(text=state, color=colour)
        for number, (state, colour) in enumerate(_COLOURS.items(), 1)
    }
    panel = (
        statetimeline.Panel()
        .with_target(_query(expression, "{{node}} GPU {{gpu}}").range())
        .merge_values(True)
        .show_value(common.VisibilityMode.AUTO)
        .mappings([ValueMap(options=names)])
    )
    return _common(panel, title, "Each GPU's state as the agent reports it.", 24, 8)


def _listing(title: str, description: str, expression: str, columns: list[str]) -> Any:
    """Return a panel with a table."""
    hidden = {name: True for name in _HIDDEN_COLUMNS if name not in columns}
    order = {name: number for number, name in enumerate(columns)}
    organize = {"excludeByName": hidden, "indexByName": order}
    panel = (
        table.Panel()
        .with_target(_query(expression).instant().format(PromQueryFormat.TABLE))
        .with_transformation(DataTransformerConfig(id_val="organize", options=organize))
    )
    return _common(panel, title, description, 12 if len(columns) < 7 else 24, 8)
