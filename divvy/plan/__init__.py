"""The prediction: capacity, guarantees, disruption and the topology diff."""

from divvy.plan.difference import Change, Difference, ResourceChange, TotalChange, diff
from divvy.plan.disruption import Disruption, disruption
from divvy.plan.guarantees import Guarantees, guarantees, level
from divvy.plan.prediction import Device, GpuPlan, NodePlan, Plan, PoolPlan, plan

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
    "TotalChange",
    "diff",
    "disruption",
    "guarantees",
    "level",
    "plan",
]
