"""Would pods fit: what they ask for, the nodes that there are, and what is in the way."""

from divvy.plan.fit.fitting import Fit, Obstacle, Place, PodsFit, fit
from divvy.plan.fit.manifests import Manifests, read_manifests
from divvy.plan.fit.nodes import FitNode, nodes_of_cluster, nodes_of_plan
from divvy.plan.fit.pods import PodToFit, asking_pod

__all__ = [
    "Fit",
    "FitNode",
    "Manifests",
    "Obstacle",
    "Place",
    "PodToFit",
    "PodsFit",
    "asking_pod",
    "fit",
    "nodes_of_cluster",
    "nodes_of_plan",
    "read_manifests",
]
