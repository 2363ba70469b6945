"""A ValidatingAdmissionPolicy and its binding, as all policies over pods and claims have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from divvy.model.api_names import Component, component_labels


def validating_policy(
    name: str,
    constraints: dict[str, Any],
    conditions: list[dict[str, str]],
    variables: list[dict[str, str]],
    validations: Sequence[tuple[str, str]],
    action: str = "Deny",
) -> list[dict[str, Any]]:
    """Return the policy and its binding; ``validations`` are expressions with their messages."""
    api, labels = "admissionregistration.k8s.io/v1", component_labels(Component.CLAIMS)
    spec: dict[str, Any] = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        "validations": [
            {"expression": expression, "messageExpression": message}
            for expression, message in validations
        ],
    }
    if conditions:
        spec["matchConditions"] = conditions
    if variables:
        spec["variables"] = variables
    return [
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": labels},
            "spec": {"policyName": name, "validationActions": [action]},
        },
    ]
