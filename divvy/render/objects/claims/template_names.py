"""The policy that keeps names of templates for the template maker, and the maker to them."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import TEMPLATE_MAKER, TEMPLATE_PREFIX
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import text
from divvy.render.objects.policy import validating_policy

NAME = "divvy-templates"


def template_names_policy(cluster: Cluster) -> list[dict[str, Any]]:
    """Return the policy that keeps names of templates for the template maker, and it to them.

    Whoever steals the maker's token cannot touch other drivers' templates, or claim their devices.
    """
    maker = text(f"system:serviceaccount:{cluster.namespace}:{TEMPLATE_MAKER}")
    by_maker = f"request.userInfo.username == {maker}"
    prefix = text(TEMPLATE_PREFIX)
    operations = ["CREATE", "DELETE"]
    variables = {
        "template": "request.operation == 'DELETE' ? oldObject : object",
        "ours": f"variables.template.metadata.name.startsWith({prefix})",
        "classes": "variables.template.spec.spec.?devices.?requests.orValue([])"
        ".map(r, r.?firstAvailable.orValue([]).map(s, s.deviceClassName) "
        "+ [r.?exactly.?deviceClassName.orValue('')].filter(k, k != '')).flatten()",
    }
    return validating_policy(
        NAME,
        match_constraints("resource.k8s.io", "resourceclaimtemplates", operations=operations),
        [
            (
                by_maker,
                "variables.template.metadata.name + "
                + text(
                    f": names that begin with {TEMPLATE_PREFIX} are for the templates that "
                    "Divvy makes; give the template another name"
                ),
            ),
            (
                # What was there before this policy may name any class, and is to be replaced.
                "variables.ours && (request.operation == 'DELETE' || "
                f"variables.classes.all(k, k.startsWith({prefix})))",
                text(
                    "the template maker may create and delete only templates whose names and "
                    f"device classes begin with {TEMPLATE_PREFIX}"
                ),
            ),
            (
                # A finalizer would keep a tenant's namespace from ever being deleted.
                "request.operation == 'DELETE' || "
                "variables.template.metadata.?finalizers.orValue([]).size() == 0",
                text("the template maker may create only templates without finalizers"),
            ),
        ],
        conditions={
            "named-as-ours": f"{by_maker} || (request.operation == 'CREATE' && "
            f"object.metadata.name.startsWith({prefix}))"
        },
        variables=variables,
    )
