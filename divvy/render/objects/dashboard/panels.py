"""Build the dashboard with Grafana's typed SDK (a dependency of development alone)."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from grafana_foundation_sdk.builders import common as common_builder
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    VariableOption,
    VariableRefresh,
)

from divvy.render.objects.dashboard import queries
from divvy.render.objects.dashboard.panel_kinds import (
    SOURCE,
    alarm,
    dashed,
    lines,
    listing,
    number,
    states,
    timeline,
)

UID = "divvy-gpu-sharing"


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
            .datasource(SOURCE)
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
                states("Nodes", "The worst state on a node is the node's.", queries.NODES_BY_STATE),
                states("GPUs", "GPUs by state.", queries.GPUS_BY_STATE),
                number("Devices advertised", "Healthy devices of all resources.", queries.OFFERED),
                number("Devices held", "Devices that a container holds.", queries.HELD),
                alarm(
                    "Unhealthy devices",
                    "Withdrawn until no error has occurred for health.recoverAfter.",
                    queries.UNHEALTHY,
                ),
                alarm(
                    "Pods over their limit",
                    "Pods that use more memory than the memoryLimit of their replicas.",
                    queries.OVER_SHARE,
                ),
                lines(
                    "Held of advertised, by resource",
                    "Dashed: advertised. Solid: held.",
                    {
                        queries.HELD_BY_RESOURCE: "{{resource}}",
                        queries.OFFERED_BY_RESOURCE: "{{resource}} advertised",
                    },
                    "short",
                    12,
                ).override_by_regexp("/ advertised$/", [dashed()]),
                lines(
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
                listing(
                    "Profiles",
                    "What each node follows; a source other than the pool bypasses the stack file.",
                    queries.PROFILES,
                    ["node", "pool", "profile", "source", "state", "generation"],
                ),
                lines(
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
                timeline("State of each GPU", queries.STATE_OF_GPU),
                lines(
                    "Utilisation",
                    "Share of time in which a kernel ran; not reported in MIG mode.",
                    {queries.UTILISATION: "{{hostname}} {{gpu}}"},
                    "percent",
                    12,
                ).max(100),
                lines(
                    "Memory in use",
                    "Of the whole GPU.",
                    {queries.MEMORY_USED: "{{hostname}} {{gpu}}"},
                    "mbytes",
                    12,
                ),
                lines(
                    "Temperature", "", {queries.TEMPERATURE: "{{hostname}} {{gpu}}"}, "celsius", 12
                ),
                lines("Power", "", {queries.POWER: "{{hostname}} {{gpu}}"}, "watt", 12),
            ],
        ),
        (
            "Devices",
            [
                listing(
                    "Who holds what",
                    "Every held device and its container.",
                    queries.HOLDERS,
                    ["namespace", "pod", "container", "resource", "mode", "device", "node"],
                ),
                lines(
                    "Memory by pod",
                    "Whole GPUs and MIG devices: what is in use is their pod's. Shares of one "
                    "device cannot be distinguished here.",
                    {queries.MEMORY_BY_POD: "{{namespace}}/{{pod}}"},
                    "mbytes",
                    12,
                ),
                lines(
                    "GPU time by container",
                    "Per cent of the GPU's time, also of shares; the driver counts none in MIG "
                    "mode, and agents see no processes of others: it is there only where a rule "
                    "has memoryLimit, mps or claims with shares.",
                    {
                        queries.UTILISATION_BY_CONTAINER: "{{namespace}}/{{pod}} {{container}} "
                        "{{gpu}}"
                    },
                    "percent",
                    12,
                ).max(100),
                lines(
                    "Memory over the limit",
                    "By how much a pod exceeds the memoryLimit of its replicas.",
                    {queries.OVER_BY_POD: "{{namespace}}/{{pod}} {{resource}}"},
                    "mbytes",
                    12,
                ),
            ],
        ),
        (
            "Teams",
            [
                lines(
                    "GPUs allocated, by namespace",
                    "A MIG device counts by its compute slices, a share by its part of the GPU.",
                    {queries.ALLOCATED: "{{namespace}}"},
                    "short",
                    12,
                )
                .stacking(common_builder.StackingConfig().mode(common.StackingMode.NORMAL))
                .fill_opacity(40),
                lines(
                    "GPU memory allocated and used",
                    "`divvy advise` says which profile would leave less of it unused.",
                    {
                        queries.MEMORY_ALLOCATED: "allocated",
                        queries.ALL_MEMORY_USED: "used",
                    },
                    "mbytes",
                    12,
                ),
                listing(
                    "GPU hours in the range",
                    "Allocated, whether used or not; an hour of half a GPU is half a GPU hour.",
                    queries.GPU_HOURS,
                    ["namespace", "kind", "Value"],
                ),
                listing(
                    "GiB hours in the range",
                    "GPU memory allocated, whether used or not.",
                    queries.MEMORY_HOURS,
                    ["namespace", "kind", "Value"],
                ),
            ],
        ),
        (
            "Limited shares",
            [
                lines(
                    "Memory of limited shares",
                    "Solid: in use, as the limiter in the pod counts it. Dashed: the limit.",
                    {
                        queries.SHARE_USED: "{{namespace}}/{{pod}}",
                        queries.SHARE_LIMIT: "{{namespace}}/{{pod}} limit",
                    },
                    "mbytes",
                    12,
                ).override_by_regexp("/ limit$/", [dashed()]),
                lines(
                    "Refused requests for memory",
                    "In the last five minutes: the pod asked for more than its share has.",
                    {queries.SHARE_REFUSALS: "{{namespace}}/{{pod}}"},
                    "short",
                    12,
                ),
                lines(
                    "Waiting for a turn",
                    "Seconds per second that launches wait while other shares have their turns.",
                    {queries.SHARE_WAITED: "{{namespace}}/{{pod}}"},
                    "s",
                    12,
                ),
                lines(
                    "Turns taken from others",
                    "In the last five minutes: launches let through because another share claimed "
                    "a turn and did not use it.",
                    {queries.SHARE_GATE_OPENED: "{{namespace}}/{{pod}}"},
                    "short",
                    12,
                ),
            ],
        ),
        (
            "Claims",
            [
                lines(
                    "GPUs by use",
                    "GPUs that are served by claims: whole, by shares, as MIG devices, free.",
                    {queries.CLAIMS_BY_USE: "{{use}}"},
                    "short",
                    12,
                )
                .stacking(common_builder.StackingConfig().mode(common.StackingMode.NORMAL))
                .fill_opacity(40),
                lines(
                    "Claims by tenant",
                    "Claims that are held; those without a tenant together.",
                    {queries.CLAIMS_BY_TENANT: "{{tenant}}"},
                    "short",
                    12,
                ),
                lines(
                    "Free memory by GPU",
                    "Available to claims; 0 for GPUs allocated whole.",
                    {queries.CLAIMS_FREE_MEMORY: "{{node}} {{gpu}}"},
                    "mbytes",
                    12,
                ),
                lines(
                    "Free compute time by GPU",
                    "Available to claims, in per cent of the GPU's compute time.",
                    {queries.CLAIMS_FREE_CORES: "{{node}} {{gpu}}"},
                    "percent",
                    12,
                ).max(100),
                lines(
                    "Preparing a claim",
                    "Seconds until half, and 95 of 100 claims were prepared, in the last five "
                    "minutes.",
                    {queries.CLAIMS_PREPARED_HALF: "half", queries.CLAIMS_PREPARED_MOST: "95 %"},
                    "s",
                    12,
                ),
            ],
        ),
    ]
