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
from divvy.model.nvidia_claims import CLASSES
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
# Of one of a claim's requests ``d``. A toleration without a key is of every taint.
_CLASS, _IS_ADMIN = "d.?deviceClassName.orValue('')", "d.?adminAccess.orValue(false)"
_KEYS = "d.?tolerations.orValue([]).map(t, t.?key.orValue(''))"
_IS_WITHOUT_KEY = f"'' in {_KEYS}"


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
        *claims_policy(cluster, offered),
        *template_names_policy(cluster),
    ]


def claims_policy(cluster: Cluster, offered: Claimable) -> list[dict[str, Any]]:
    """Return the policy over claims with its binding: what profiles let pods claim is not asked."""
    because = ": such a device is failing, or about to change"
    is_ours = f"{_CLASS}.startsWith({text(TEMPLATE_PREFIX)})"
    # Any class may have Divvy's devices.
    has_our_key = f"{_KEYS}.exists(k, k.startsWith({text(f'{CLAIMS_DRIVER}/')}))"
    refused = [
        (f"{_IS_ADMIN} && {is_ours}", "Divvy's devices do not offer adminAccess; leave it out"),
        (
            f"{has_our_key} || ({_IS_WITHOUT_KEY} && {is_ours})",
            f"tolerations of taints {CLAIMS_DRIVER}/… are not accepted{because}",
        ),
    ]
    if cluster.names.classes is not None:
        # What watches devices of NVIDIA's driver may tolerate all: it has admin access.
        also = f"tolerations without a key are also of taints {CLAIMS_DRIVER}/…{because}"
        is_nvidias = f"{_CLASS} in {texts(CLASSES)} && !{_IS_ADMIN}"
        refused.append((f"{_IS_WITHOUT_KEY} && {is_nvidias}", f"{also}; name the key"))
    validations = [
        (f"!variables.requests.exists(d, {asked})", text(words)) for asked, words in refused
    ]
    parameters = (
        f"devices.config has parameters for {CLAIMS_DRIVER}, which takes none; request memory and "
        "cores as capacity"
    )
    is_configured = f"c.?opaque.?driver.orValue('') == {text(CLAIMS_DRIVER)}"
    configs = "variables.spec.?devices.?config.orValue([])"
    validations.append((f"!{configs}.exists(c, {is_configured})", text(parameters)))
    variables = {
        "spec": "has(object.spec.spec) ? object.spec.spec : object.spec",
        "requests": "variables.spec.?devices.?requests.orValue([]).map(r, "
        "[r.?exactly.orValue({})] + r.?firstAvailable.orValue([])).flatten()",
    }
    if offered.shares:
        validations.append(("variables.foreign.size() == 0", _not_yours("variables.foreign")))
        variables |= {
            "tenants": texts(offered.tenants),
            "tenant": f"namespaceObject.metadata.?labels[?{text(TENANT_LABEL)}].orValue('')",
            "foreign": f"variables.requests.map(d, {_CLASS})"
            f".filter(k, k.startsWith({text(_TENANT_CLASS)}))"
            f".map(k, k.substring({len(_TENANT_CLASS)}))"
            f".filter(t, t in variables.tenants && t != {_TENANT})",
        }
    constraints = match_constraints("resource.k8s.io", "resourceclaims", "resourceclaimtemplates")
    return validating_policy(CLAIMS, constraints, validations, variables=variables)


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


def _not_yours(tenants: str) -> str:
    return (
        f"'the shares of the tenant ' + {tenants}[0] + "
        f"' are for namespaces with the label {TENANT_LABEL}: ' + {tenants}[0] + "
        "', and namespace ' + namespaceObject.metadata.name + ' does not have it'"
    )
