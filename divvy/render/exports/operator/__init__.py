"""NVIDIA's GPU Operator, configured for the same topology where it can be."""

from divvy.render.exports.operator.files import (
    MIG,
    REPOSITORY,
    TIME_SLICING,
    Site,
    mig_configs,
    node_labels,
    operator_files,
    operator_values,
    time_slicing_data,
)
from divvy.render.exports.operator.refusal import Refusal
from divvy.render.exports.operator.translation import Translation, translate

__all__ = [
    "MIG",
    "REPOSITORY",
    "TIME_SLICING",
    "Refusal",
    "Site",
    "Translation",
    "mig_configs",
    "node_labels",
    "operator_files",
    "operator_values",
    "time_slicing_data",
    "translate",
]
