"""The prediction: capacity, guarantees, disruption and the topology diff."""

from divvy.plan.difference import Change, Difference, ResourceChange, TotalChange, diff
from divvy.plan.disruption import Disruption, disruption
from divvy.plan.guarantees import Guarantees, guarantees, level
from divvy.plan.live import LiveDifference, LiveNode, NodeDifference, compare_live
from divvy.plan.prediction import (
    Device,
    GpuPlan,
    NodePlan,
    Plan,
    PoolPlan,
    plan,
    predict_node,
)

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
    "TotalChange",
    "compare_live",
    "diff",
    "disruption",
    "guarantees",
    "level",
    "plan",
    "predict_node",
]
