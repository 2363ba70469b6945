"""Policies that refuse, in a sentence, what could only wait forever or is another tenant's."""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    CLAIMS_DRIVER,
    CLASS_RESOURCE,
    MAX_NAMED_TEMPLATES,
    TEMPLATE_PREFIX,
    TENANT_LABEL,
)
from divvy.model.claim_names import MAX_TYPES, SHARE_CLASS
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import BOTH_LISTS, line, text, texts
from divvy.render.objects.claims.claimable import Claimable
from divvy.render.objects.claims.pod_variables import asks_by_size, pod_variables
from divvy.render.objects.claims.sized_limits import NAME as SIZED_LIMITS
from divvy.render.objects.claims.template_names import template_names_policy
from divvy.render.objects.policy import validating_policy

PODS, CLAIMS = "divvy-gpu-requests", "divvy-claims"
_TENANT_CLASS = f"{SHARE_CLASS}-"
_RESOURCE = f"{CLASS_RESOURCE}{_TENANT_CLASS}"
_TENANT = "variables.tenant"


def refusal_policies(cluster: Cluster, offered: Claimable) -> list[dict[str, Any]]:
    """Return the policies with their bindings."""
    return [
        *validating_policy(
            PODS,
            match_constraints("", "pods"),
            [
                ("variables.problems.size() == 0", "variables.problems[0]"),
                ("!variables.sized", _left()),
                (
                    f"{_named_templates()}.size() <= {MAX_NAMED_TEMPLATES}",
                    f"'the pod has ' + string({_named_templates()}.size()) + "
                    + text(f" claims by size; {MAX_NAMED_TEMPLATES} at most are possible"),
                ),
                (
                    f"{_odd_templates()}.size() == 0",
                    f"{_odd_templates()}[0] + "
                    + text(
                        ": the GPU types in the name of a template have to be distinct, in "
                        f"alphabetical order, and {MAX_TYPES} at most after each of use and no"
                    ),
                ),
                (f"{_foreign_templates()}.size() == 0", _not_yours(_foreign_templates())),
                (f"{_foreign_resources()}.size() == 0", _not_yours(_foreign_resources())),
            ],
            conditions={"asks-for-gpus": _asks(cluster)},
            variables=pod_variables(cluster, offered),
        ),
        *validating_policy(
            CLAIMS,
            match_constraints("resource.k8s.io", "resourceclaims", "resourceclaimtemplates"),
            [
                ("variables.foreign.size() == 0", _not_yours("variables.foreign")),
                (
                    "!variables.asksForAdmin",
                    text("Divvy's devices do not offer adminAccess; leave it out"),
                ),
                (
                    "!variables.tolerates",
                    text(
                        f"tolerations of taints {CLAIMS_DRIVER}/… are not accepted: such a device "
                        "is failing, or about to change"
                    ),
                ),
                (
                    "!variables.configured",
                    text(
                        f"devices.config has parameters for {CLAIMS_DRIVER}, which takes none; "
                        "request memory and cores as capacity"
                    ),
                ),
            ],
            variables=_class_variables(offered),
        ),
        *template_names_policy(cluster),
    ]


def _asks(cluster: Cluster) -> str:
    """Return whether a pod asks for GPUs by size, or for what only Divvy names."""
    return line(
        f"{asks_by_size(cluster)} || object.spec.?resourceClaims.orValue([]).exists(r, "
        f"r.?resourceClaimTemplateName.orValue('').startsWith({text(TEMPLATE_PREFIX)})) || "
        "(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, "
        f"{BOTH_LISTS}.exists(l, l.exists(k, k.startsWith({text(_RESOURCE)}))))"
    )


def _left() -> str:
    keys_filter = "variables.keys.filter(k, variables.containers.exists(c, "
    return line(
        f"{keys_filter}k in c.?resources.?limits.orValue({{}}))).join(', ') + "
        + text(
            f" has not become a claim: the policy {SIZED_LIMITS} is missing, or ran before what "
            "wrote it into the pod"
        )
    )


def _named_templates() -> str:
    return (
        "object.spec.?resourceClaims.orValue([]).map(r, "
        "r.?resourceClaimTemplateName.orValue(''))"
        f".filter(t, t.startsWith({text(TEMPLATE_PREFIX)}))"
    )


def _odd_templates() -> str:
    """Return the templates that a pod names otherwise than the mutation would."""
    used = "t.split('.use.')[1].split('.no.')[0].split('.tenant.')[0].split('.')"
    no = "t.split('.no.')[1].split('.tenant.')[0].split('.')"
    lists = f"[t.contains('.use.') ? {used} : [], t.contains('.no.') ? {no} : []]"
    return line(
        f"{_named_templates()}.filter(t, {lists}"
        f".exists(l, l.size() > {MAX_TYPES} || l.distinct().sort() != l))"
    )


def _foreign_templates() -> str:
    """Return the tenants of the templates that a pod names, those of its namespace left out."""
    return line(
        f"{_named_templates()}.filter(t, t.contains('.tenant.'))"
        f".map(t, t.split('.tenant.')[1]).filter(t, t != {_TENANT})"
    )


def _foreign_resources() -> str:
    return line(
        f"variables.containers.map(c, {BOTH_LISTS}.map(l, "
        f"l.filter(k, k.startsWith({text(_RESOURCE)}))).flatten()).flatten()"
        f".map(k, k.substring({len(_RESOURCE)})).filter(t, t != {_TENANT})"
    )


def _class_variables(offered: Claimable) -> dict[str, str]:
    return {
        "tenants": texts(offered.tenants),
        "tenant": f"namespaceObject.metadata.?labels[?{text(TENANT_LABEL)}].orValue('')",
        "requests": "(has(object.spec.spec) ? object.spec.spec : object.spec)"
        ".?devices.?requests.orValue([])",
        "foreign": "variables.requests.map(r, r.?firstAvailable.orValue([])"
        ".map(s, s.deviceClassName) + [r.?exactly.?deviceClassName.orValue('')]).flatten()"
        f".filter(k, k.startsWith({text(_TENANT_CLASS)}))"
        f".map(k, k.substring({len(_TENANT_CLASS)}))"
        f".filter(t, t in variables.tenants && t != {_TENANT})",
        "spec": "has(object.spec.spec) ? object.spec.spec : object.spec",
        "asksForAdmin": "variables.requests.exists(r, "
        "r.?exactly.?adminAccess.orValue(false) && "
        f"r.exactly.deviceClassName.startsWith({text(TEMPLATE_PREFIX)}))",
        # One without a key tolerates every taint. Any class may have Divvy's devices.
        "tolerates": "variables.requests.exists(r, ([r.?exactly.orValue({})] "
        "+ r.?firstAvailable.orValue([])).exists(d, "
        "d.?tolerations.orValue([]).exists(t, t.?key.orValue('') == '' "
        f"? d.?deviceClassName.orValue('').startsWith({text(TEMPLATE_PREFIX)}) "
        f": t.key.startsWith({text(f'{CLAIMS_DRIVER}/')}))))",
        "configured": "variables.spec.?devices.?config.orValue([]).exists(c, "
        f"c.?opaque.?driver.orValue('') == {text(CLAIMS_DRIVER)})",
    }


def _not_yours(tenants: str) -> str:
    return (
        f"'the shares of the tenant ' + {tenants}[0] + "
        f"' are for namespaces with the label {TENANT_LABEL}: ' + {tenants}[0] + "
        "', and namespace ' + namespaceObject.metadata.name + ' does not have it'"
    )
