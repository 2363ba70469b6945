"""The policy that warns whoever creates a pod of what Divvy ignores in it."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    BY_SIZE_LABEL,
    FRACTION_BEFORE,
    IGNORED_ANNOTATIONS,
    IGNORED_LIMITS,
)
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import line, text, texts
from divvy.render.objects.policy import validating_policy

NAME = "divvy-ignored"


def warning_policy(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the policy that warns whoever creates a pod of what is ignored in it.

    It sees pods as the policy of sized limits leaves them.
    """
    annotations = "object.metadata.?annotations.orValue({})"
    gpu = text(cluster.names.gpu)
    ignored = f"{texts(IGNORED_ANNOTATIONS)}.filter(k, k in {annotations})"
    by_size = f"object.metadata.?labels[?{text(BY_SIZE_LABEL)}].orValue('') == 'true'"
    bare = "object.metadata.?ownerReferences.orValue([]).size() == 0"
    applied = (
        f"('kubectl.kubernetes.io/last-applied-configuration' in {annotations} || "
        "object.metadata.?managedFields.orValue([]).exists(f, "
        "f.?operation.orValue('') == 'Apply'))"
    )
    limits = f"{annotations}[?{text(IGNORED_LIMITS)}].orValue('')"
    return validating_policy(
        NAME,
        match_constraints("", "pods"),
        [
            (
                "variables.ignored.size() == 0",
                text("Divvy ignores the annotations ") + " + variables.ignored.join(', ')",
            ),
            (
                f"{limits} == ''",
                text("Divvy ignores the limit ")
                + f" + {limits} + "
                + text("; a share with more cores gets more time"),
            ),
            (
                # What was asked by annotation is not in the limits, which stay as they were.
                line(
                    f"!({by_size} && {bare} && {applied} && "
                    f"!({text(FRACTION_BEFORE)} in {annotations}))"
                ),
                text(
                    "this pod cannot be applied again, since its limits have become claims; "
                    "delete it first, or use a Deployment or a Job"
                ),
            ),
        ],
        conditions={
            "has-gpus": line(
                f"{by_size} || {text(IGNORED_LIMITS)} in {annotations} || "
                "(object.spec.containers + object.spec.?initContainers.orValue([]))"
                f".exists(c, {gpu} in c.?resources.?limits.orValue({{}}))"
            )
        },
        variables={"ignored": ignored},
        action="Warn",
    )
