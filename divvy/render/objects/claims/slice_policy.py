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
)
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import text
from divvy.render.objects.policy import validating_policy

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
    return validating_policy(
        f"{namespace}-{AGENT}-slices",
        match_constraints(
            "resource.k8s.io", "resourceslices", operations=["CREATE", "UPDATE", "DELETE"]
        ),
        [
            (
                "variables.node.hasValue() && variables.slices.all(s, "
                "s.spec.?nodeName.orValue('') == variables.node.value()[0])",
                "a divvy agent may write ResourceSlices of its own node only",
            ),
            (
                "variables.node.hasValue() && variables.slices.all(s, "
                f"s.spec.pool.name == variables.node.value()[0] + {text(claims_pool(''))})",
                "a divvy agent may write ResourceSlices of its own node's pool only",
            ),
            (
                # A slice of that name keeps another node from publishing its own. A node with a
                # long name has a digest of it in its slices' names.
                "variables.node.hasValue() && variables.slices.all(s, "
                f"s.metadata.name.startsWith(variables.node.value()[0] + {text(_NAME)}) || "
                f"(variables.node.value()[0].size() > {_LONG} && "
                f"s.metadata.name.matches({text(_DIGEST_NAME)})))",
                "a divvy agent may write ResourceSlices of its own names only",
            ),
            (
                f"variables.slices.all(s, s.spec.driver == {text(CLAIMS_DRIVER)})",
                f"a divvy agent may write ResourceSlices of {CLAIMS_DRIVER} only",
            ),
        ],
        conditions={"agent": f"request.userInfo.username == {text(user)}"},
        variables={"slices": _OBJECTS, "node": f"request.userInfo.?extra[?{text(_KEY)}]"},
        component=Component.AGENT,
        words="message",
    )
