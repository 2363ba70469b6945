"""A ValidatingAdmissionPolicy and its binding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from divvy.model.api_names import Component, component_labels


def validating_policy(
    name: str,
    constraints: Mapping[str, Any],
    validations: Sequence[tuple[str, str]],
    *,
    conditions: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    component: Component = Component.CLAIMS,
    words: Literal["message", "messageExpression"] = "messageExpression",
    action: str = "Deny",
) -> list[dict[str, Any]]:
    """Return the policy and its binding.

    ``validations`` are expressions with their ``words``; conditions and variables are expressions
    by their names.
    """
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy"}
    metadata = {"name": name, "labels": component_labels(component)}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": constraints,
        **({"matchConditions": named(conditions)} if conditions else {}),
        **({"variables": named(variables)} if variables else {}),
        "validations": [
            {"expression": expression, words: message} for expression, message in validations
        ],
    }
    binding = {"policyName": name, "validationActions": [action]}
    return [
        {**api, "metadata": metadata, "spec": spec},
        {**api, "kind": f"{api['kind']}Binding", "metadata": metadata, "spec": binding},
    ]


def named(expressions: Mapping[str, str]) -> list[dict[str, str]]:
    """Return expressions as a policy has them."""
    return [{"name": name, "expression": value} for name, value in expressions.items()]
