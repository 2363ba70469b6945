"""The prediction: capacity, guarantees, disruption and the topology diff."""

from divvy.plan.difference import Change, Difference, ResourceChange, TotalChange, diff
from divvy.plan.disruption import Disruption, disruption
from divvy.plan.guarantees import Guarantees, guarantees, level
from divvy.plan.live import (
    LiveDifference,
    LiveNode,
    NodeDifference,
    compare_live,
    concerns,
    device_counts,
    live_node,
    node_status,
    offered_resources,
)
from divvy.plan.prediction import (
    Device,
    GpuPlan,
    NodePlan,
    Plan,
    PoolPlan,
    plan,
    predict_node,
)
from divvy.plan.setting_changes import SettingChange

__all__ = [
    "Change",
    "Device",
    "Difference",
    "Disruption",
    "GpuPlan",
    "Guarantees",
    "LiveDifference",
    "LiveNode",
    "NodeDifference",
    "NodePlan",
    "Plan",
    "PoolPlan",
    "ResourceChange",
    "SettingChange",
    "TotalChange",
    "compare_live",
    "concerns",
    "device_counts",
    "diff",
    "disruption",
    "guarantees",
    "level",
    "live_node",
    "node_status",
    "offered_resources",
    "plan",
    "predict_node",
]
