"""Kinds of panels: numbers, lines over time, timelines, tables."""

from __future__ import annotations

from typing import Any

from grafana_foundation_sdk.builders import (
    dashboard,
    prometheus,
    stat,
    statetimeline,
    table,
    timeseries,
)
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from divvy.model.api_names import State

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
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


def _query(expression: str, legend: str = "") -> prometheus.Dataquery:
    return (
        prometheus.Dataquery().datasource(SOURCE).expr(expression).legend_format(legend).ref_id("A")
    )


def _common(panel: Any, title: str, description: str, width: int, height: int) -> Any:
    panel = panel.title(title).datasource(SOURCE).span(width).height(height)
    return panel.description(description) if description else panel


def number(title: str, description: str, expression: str) -> Any:
    """Return a panel with one number."""
    panel = stat.Panel().with_target(_query(expression, title).instant())
    return _common(panel, title, description, 4, 5)


def alarm(title: str, description: str, expression: str) -> Any:
    """Return a panel with a number that is red from 1 on."""
    steps = [Threshold(value=None, color="green"), Threshold(value=1, color="red")]
    limits = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
    return number(title, description, expression).thresholds(limits)


def states(title: str, description: str, expression: str) -> Any:
    """Return a panel with a number for each state."""
    panel = stat.Panel().with_target(_query(expression, "{{state}}").instant())
    panel = panel.text_mode(common.BigValueTextMode.VALUE_AND_NAME)
    for state, colour in _COLOURS.items():
        fixed = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(state, [DynamicConfigValue(id_val="color", value=fixed)])
    return _common(panel, title, description, 4, 5)


def lines(title: str, description: str, expressions: dict[str, str], unit: str, width: int) -> Any:
    """Return a panel of lines over time, by their queries and legends."""
    panel = timeseries.Panel().unit(unit).min(0).fill_opacity(5)
    for number, (expression, legend) in enumerate(expressions.items()):
        panel = panel.with_target(_query(expression, legend).range().ref_id(chr(65 + number)))
    return _common(panel, title, description, width, 8)


def dashed() -> DynamicConfigValue:
    """Return what makes a line dashed."""
    return DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [6, 6]})


def timeline(title: str, expression: str) -> Any:
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


def listing(title: str, description: str, expression: str, columns: list[str]) -> Any:
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
