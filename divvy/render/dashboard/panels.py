"""Build the dashboard with Grafana's typed SDK (a dependency of development alone)."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from grafana_foundation_sdk.builders import common as common_builder
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

from divvy.model.contract import State
from divvy.render.dashboard import queries

UID = "divvy-gpu-sharing"
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_COLOURS = dict(zip(State, ("green", "blue", "yellow", "orange", "red", "dark-red"), strict=True))
_NEVER_SHOWN = ("Time", "Value", "__name__", "instance", "job", "endpoint", "service", "container")


def build() -> str:
    """Return the dashboard's JSON; the same bytes every time."""
    whole = (
        dashboard.Dashboard("Divvy: GPU sharing")
        .uid(UID)
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
            .query(queries.NODES)
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


def _rows() -> list[tuple[str, list[Any]]]:
    return [
        (
            "Cluster",
            [
                _states(
                    "Nodes", "The worst state on a node is the node's.", queries.NODES_BY_STATE
                ),
                _states("GPUs", "GPUs by state.", queries.GPUS_BY_STATE),
                _number("Devices advertised", "Healthy devices of all resources.", queries.OFFERED),
                _number("Devices held", "Devices that a container holds.", queries.HELD),
                _alarm("Unhealthy devices", "Withdrawn until they are calm.", queries.UNHEALTHY),
                _alarm(
                    "Pods over their limit",
                    "Pods that use more memory than the memoryLimit of their replicas.",
                    queries.OVER_SHARE,
                ),
                _lines(
                    "Held of advertised, by resource",
                    "Dashed: advertised. Solid: held.",
                    {
                        queries.HELD_BY_RESOURCE: "{{resource}}",
                        queries.OFFERED_BY_RESOURCE: "{{resource}} advertised",
                    },
                    "short",
                    12,
                ).override_by_regexp("/ advertised$/", [_dashed()]),
                _lines(
                    "Shared against exclusive",
                    "GPUs and MIG devices in use, by mode; many replicas of one device count once.",
                    {queries.HELD_BY_MODE: "{{mode}}"},
                    "short",
                    12,
                )
                .stacking(common_builder.StackingConfig().mode(common.StackingMode.NORMAL))
                .fill_opacity(40),
            ],
        ),
        (
            "Nodes",
            [
                _list(
                    "Profiles",
                    "What each node follows; a source other than the pool bypasses the stack file.",
                    queries.PROFILES,
                    ["node", "pool", "profile", "source", "state", "generation"],
                ),
                _lines(
                    "Time in transition",
                    "Seconds in the range that GPUs spent being reconfigured (Changing) or "
                    "waiting for pods (Waiting).",
                    {queries.IN_TRANSITION: "{{node}} {{state}}"},
                    "s",
                    12,
                ),
            ],
        ),
        (
            "GPUs",
            [
                _timeline("State of each GPU", queries.STATE_OF_GPU),
                _lines(
                    "Utilisation",
                    "Share of time in which a kernel ran; a GPU in MIG mode gives none.",
                    {queries.UTILISATION: "{{hostname}} {{gpu}}"},
                    "percent",
                    12,
                ).max(100),
                _lines(
                    "Memory in use",
                    "Of the whole GPU.",
                    {queries.MEMORY_USED: "{{hostname}} {{gpu}}"},
                    "mbytes",
                    12,
                ),
                _lines(
                    "Temperature", "", {queries.TEMPERATURE: "{{hostname}} {{gpu}}"}, "celsius", 12
                ),
                _lines("Power", "", {queries.POWER: "{{hostname}} {{gpu}}"}, "watt", 12),
            ],
        ),
        (
            "Devices",
            [
                _list(
                    "Who holds what",
                    "Every held device and its container.",
                    queries.HOLDERS,
                    ["namespace", "pod", "container", "resource", "mode", "device", "node"],
                ),
                _lines(
                    "Memory by pod",
                    "Whole GPUs and MIG devices: what is in use is their pod's. Shares of one "
                    "device cannot be distinguished here.",
                    {queries.MEMORY_BY_POD: "{{namespace}}/{{pod}}"},
                    "mbytes",
                    12,
                ),
                _lines(
                    "Memory over the limit",
                    "By how much a pod exceeds the memoryLimit of its replicas.",
                    {queries.OVER_BY_POD: "{{namespace}}/{{pod}} {{resource}}"},
                    "mbytes",
                    12,
                ),
            ],
        ),
        (
            "Limited shares",
            [
                _lines(
                    "Memory of limited shares",
                    "Solid: in use, as the limiter in the pod counts it. Dashed: the limit.",
                    {
                        queries.SHARE_USED: "{{namespace}}/{{pod}}",
                        queries.SHARE_LIMIT: "{{namespace}}/{{pod}} limit",
                    },
                    "mbytes",
                    12,
                ).override_by_regexp("/ limit$/", [_dashed()]),
                _lines(
                    "Refused requests for memory",
                    "In the last five minutes: the pod asked for more than its share has.",
                    {queries.SHARE_REFUSALS: "{{namespace}}/{{pod}}"},
                    "short",
                    12,
                ),
                _lines(
                    "Waiting for a turn",
                    "Seconds per second that launches wait while other shares have their turns.",
                    {queries.SHARE_WAITED: "{{namespace}}/{{pod}}"},
                    "s",
                    12,
                ),
                _lines(
                    "Turns taken from others",
                    "In the last five minutes: launches let through because another share claimed "
                    "a turn and did not use it.",
                    {queries.SHARE_GATE_OPENED: "{{namespace}}/{{pod}}"},
                    "short",
                    12,
                ),
            ],
        ),
    ]


def _query(expression: str, legend: str = "") -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .datasource(_SOURCE)
        .expr(expression)
        .legend_format(legend)
        .ref_id("A")
    )


def _common(panel: Any, title: str, description: str, width: int, height: int) -> Any:
    made = panel.title(title).datasource(_SOURCE).span(width).height(height)
    return made.description(description) if description else made


def _number(title: str, description: str, expression: str) -> Any:
    panel = stat.Panel().with_target(_query(expression, title).instant())
    return _common(panel, title, description, 4, 5)


def _alarm(title: str, description: str, expression: str) -> Any:
    steps = [Threshold(value=None, color="green"), Threshold(value=1, color="red")]
    limits = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    return _number(title, description, expression).thresholds(limits)


def _states(title: str, description: str, expression: str) -> Any:
    panel = stat.Panel().with_target(_query(expression, "{{state}}").instant())
    panel = panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    for state, colour in _COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(state, [DynamicConfigValue(id_val="color", value=fixed)])
    return _common(panel, title, description, 4, 5)


def _lines(title: str, description: str, expressions: dict[str, str], unit: str, width: int) -> Any:
    panel = timeseries.Panel().unit(unit).min(0).fill_opacity(5)
    for number, (expression, legend) in enumerate(expressions.items()):
        panel = panel.with_target(_query(expression, legend).range().ref_id(chr(65 + number)))
    return _common(panel, title, description, width, 8)


def _dashed() -> DynamicConfigValue:
    return DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]})


def _timeline(title: str, expression: str) -> Any:
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
    return _common(panel, title, "What the agent says of every GPU.", 24, 8)


def _list(title: str, description: str, expression: str, columns: list[str]) -> Any:
    hidden = {name: True for name in _NEVER_SHOWN if name not in columns}
    order = {name: number for number, name in enumerate(columns)}
    organize = {"excludeByName": hidden, "indexByName": order}
    panel = (
        table.Panel()
        .with_target(_query(expression).instant().format(PromQueryFormat.TABLE))
        .with_transformation(DataTransformerConfig(id_val="organize", options=organize))
    )
    return _common(panel, title, description, 12 if len(columns) < 7 else 24, 8)
