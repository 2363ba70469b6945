"""The prediction: capacity, guarantees, disruption and the topology diff."""

from divvy.plan.predict.guarantees import Guarantees, guarantees, level
from divvy.plan.predict.prediction import (
    Device,
    GpuPlan,
    NodePlan,
    Plan,
    PoolPlan,
    plan,
    predict_node,
)
from divvy.plan.review.difference import Change, Difference, ResourceChange, TotalChange, diff
from divvy.plan.review.disruption import Disruption, disruption
from divvy.plan.review.setting_changes import SettingChange

__all__ = [
    "Change",
    "Device",
    "Difference",
    "Disruption",
    "GpuPlan",
    "Guarantees",
    "NodePlan",
    "Plan",
    "PoolPlan",
    "ResourceChange",
    "SettingChange",
    "TotalChange",
    "diff",
    "disruption",
    "guarantees",
    "level",
    "plan",
    "predict_node",
]
