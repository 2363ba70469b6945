"""The policy that holds each agent to the ResourceSlices of its own node.

RBAC cannot say "your own node"; the token of a pod carries the node's name. The pool counts, too:
the scheduler keeps allocations by pool and device, so a slice of another node's pool would take
that node's devices.
"""

from __future__ import annotations

from typing import Any

from divvy.model.api_names import (
    AGENT,
    CLAIMS_DRIVER,
    Component,
    claims_pool,
    component_labels,
)
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import text

_KEY = "authentication.kubernetes.io/node-name"
# After the node's name in those of its slices; a long one is replaced by a digest.
_NAME, _LONG = f"-{CLAIMS_DRIVER}-", 200
_DIGEST_NAME = f"^[0-9a-f]{{16}}-{CLAIMS_DRIVER.replace('.', '[.]')}-"
_OBJECTS = (
    "request.operation == 'CREATE' ? [object] "
    ": request.operation == 'DELETE' ? [oldObject] : [oldObject, object]"
)


def slice_policy(namespace: str) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    user = f"system:serviceaccount:{namespace}:{AGENT}"
    name = f"{namespace}-{AGENT}-slices"
    api, labels = "admissionregistration.k8s.io/v1", component_labels(Component.AGENT)
    return [
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": match_constraints(
                    "resource.k8s.io",
                    "resourceslices",
                    operations=["CREATE", "UPDATE", "DELETE"],
                ),
                "matchConditions": [
                    {"name": "agent", "expression": f"request.userInfo.username == {text(user)}"}
                ],
                "variables": [
                    {"name": "slices", "expression": _OBJECTS},
                    {"name": "node", "expression": f"request.userInfo.?extra[?{text(_KEY)}]"},
                ],
                "validations": [
                    {
                        "expression": "variables.node.hasValue() && variables.slices.all(s, "
                        "s.spec.?nodeName.orValue('') == variables.node.value()[0])",
                        "message": "a divvy agent may write ResourceSlices of its own node only",
                    },
                    {
                        "expression": "variables.node.hasValue() && variables.slices.all(s, "
                        f"s.spec.pool.name == variables.node.value()[0] + {text(claims_pool(''))})",
                        "message": "a divvy agent may write ResourceSlices of its own node's "
                        "pool only",
                    },
                    {
                        # A slice of that name keeps another node from publishing its own. A node
                        # with a long name has a digest of it in its slices' names.
                        "expression": "variables.node.hasValue() && variables.slices.all(s, "
                        f"s.metadata.name.startsWith(variables.node.value()[0] + {text(_NAME)}) || "
                        f"(variables.node.value()[0].size() > {_LONG} && "
                        f"s.metadata.name.matches({text(_DIGEST_NAME)})))",
                        "message": "a divvy agent may write ResourceSlices of its own names only",
                    },
                    {
                        "expression": "variables.slices.all(s, "
                        f"s.spec.driver == {text(CLAIMS_DRIVER)})",
                        "message": f"a divvy agent may write ResourceSlices of {CLAIMS_DRIVER} "
                        "only",
                    },
                ],
            },
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name, "labels": labels},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
