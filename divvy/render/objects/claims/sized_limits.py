"""The policy that turns limits such as ``nvidia.com/gpumem: 3000`` into claims.

It runs in the API server, without a webhook: there is no server to keep and no certificate to
renew. It names templates that say what was asked for, which the template maker then writes.
A pod with a problem is left as it is, for the policy of refusals to say so.
"""

from __future__ import annotations

from typing import Any

from divvy.model import Cluster
from divvy.model.api_names import (
    BY_SIZE_LABEL,
    IGNORED_LIMITS,
    PRIORITY,
    Component,
    component_labels,
)
from divvy.render.objects.atomic_values import match_constraints
from divvy.render.objects.claims.cel import line, text
from divvy.render.objects.claims.claimable import Claimable
from divvy.render.objects.claims.fraction_variables import without_fraction
from divvy.render.objects.claims.pod_variables import (
    APP_CLAIM,
    INIT_CLAIM,
    asks_by_size,
    pod_variables,
)
from divvy.render.objects.policy import named

NAME = "divvy-sized-limits"
_PLACES = (("containers", "0"), ("initContainers", "object.spec.containers.size()"))


def sized_limits_policy(cluster: Cluster, offered: Claimable) -> list[dict[str, Any]]:
    """Return the policy and its binding."""
    api, labels = "admissionregistration.k8s.io/v1", component_labels(Component.CLAIMS)
    return [
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": NAME, "labels": labels},
            "spec": {
                "failurePolicy": "Fail",
                # Webhooks may add containers that ask for GPUs by size.
                "reinvocationPolicy": "IfNeeded",
                "matchConstraints": match_constraints("", "pods"),
                "matchConditions": named({"asks-by-size": asks_by_size(cluster)}),
                "variables": named(pod_variables(cluster, offered) | _claim_variables()),
                "mutations": [
                    {"patchType": "JSONPatch", "jsonPatch": {"expression": _patches(cluster)}}
                ],
            },
        },
        {
            "apiVersion": api,
            "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": NAME, "labels": labels},
            "spec": {"policyName": NAME},
        },
    ]


def _claim_variables() -> dict[str, str]:
    """Return the claim of each container: '' for none.

    An init container that is over before the others start uses the claim of the first container
    that asks for the same, or else of the first such init container; a sidecar has its own.
    """
    apps = "variables.templates.slice(0, object.spec.containers.size())"
    inits = (
        "variables.templates.slice(object.spec.containers.size(), variables.templates.size())"
        ".transformList(i, t, "
        "object.spec.initContainers[i].?restartPolicy.orValue('') == 'Always' ? '' : t)"
    )
    app, init = text(APP_CLAIM), text(INIT_CLAIM)
    claims = f"""
        variables.templates.transformList(i, t, t == '' ? ''
        : i < variables.apps.size() ? {app} + string(i)
        : variables.inits[i - variables.apps.size()] == '' ? {init} + string(i)
        : variables.apps.exists(a, a == t) ? {app} + string(variables.apps.indexOf(t))
        : {init} + string(variables.apps.size() + variables.inits.indexOf(t)))
    """
    own = f"""
        variables.templates.transformList(i, t, t != '' && variables.claims[i] ==
        (i < variables.apps.size() ? {app} : {init}) + string(i),
        {{'name': variables.claims[i], 'resourceClaimTemplateName': t}})
    """
    prioritized = f"""variables.plain.exists(c,
        {text(PRIORITY)} in c.?resources.?limits.orValue({{}})
        || {text(PRIORITY)} in c.?resources.?requests.orValue({{}}))"""
    expressions = {
        "apps": apps,
        "inits": inits,
        "claims": claims,
        "podClaims": own,
        "prioritized": prioritized,
    }
    return {name: line(value) for name, value in expressions.items()}


def _patches(cluster: Cluster) -> str:
    key = text(BY_SIZE_LABEL)
    parts = [
        f"""(has(object.metadata.labels)
            ? [JSONPatch{{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey({key}),
              value: 'true'}}]
            : [JSONPatch{{op: 'add', path: '/metadata/labels', value: {{{key}: 'true'}}}}])""",
        """(has(object.spec.resourceClaims)
            ? variables.podClaims.map(c, JSONPatch{op: 'add', path: '/spec/resourceClaims/-',
              value: c})
            : [JSONPatch{op: 'add', path: '/spec/resourceClaims', value: variables.podClaims}])""",
        *(_container_patches(place, offset) for place, offset in _PLACES),
        without_fraction(cluster),
    ]
    return line(
        f"variables.problems.size() > 0 ? [] : (variables.sized ? {' + '.join(parts)} : []) "
        f"+ (variables.prioritized ? {_without_priority()} : [])"
    )


def _without_priority() -> str:
    """Return the patches that remove HAMi's priority, which no node has, and say so in the pod."""
    key = text(IGNORED_LIMITS)
    noted = f"""(has(object.metadata.annotations)
        ? [JSONPatch{{op: 'add', path: '/metadata/annotations/' + jsonpatch.escapeKey({key}),
          value: {text(PRIORITY)}}}]
        : [JSONPatch{{op: 'add', path: '/metadata/annotations',
          value: {{{key}: {text(PRIORITY)}}}}}])"""
    removed = [
        f"""object.spec.?{place}.orValue([]).transformList(i, c,
            ['limits', 'requests'].filter(part,
              {text(PRIORITY)} in (part == 'limits' ? c.?resources.?limits.orValue({{}})
                : c.?resources.?requests.orValue({{}})))
            .map(part, JSONPatch{{op: 'remove', path: '/spec/{place}/' + string(i) + '/resources/'
              + part + '/' + jsonpatch.escapeKey({text(PRIORITY)})}})).flatten()"""
        for place, _ in _PLACES
    ]
    return " + ".join([noted, *removed])


def _container_patches(place: str, offset: str) -> str:
    path = f"'/spec/{place}/' + string(i) + '/resources/"
    claim = f"{{'name': variables.claims[i + {offset}]}}"
    removed = " + ".join(
        f"""variables.keys.filter(k, k in c.resources.?{part}.orValue({{}})).map(k,
            JSONPatch{{op: 'remove', path: {path}{part}/' + jsonpatch.escapeKey(k)}})"""
        for part in ("limits", "requests")
    )
    return f"""object.spec.?{place}.orValue([]).transformList(i, c,
        variables.templates[i + {offset}] != '',
        {removed}
        + [has(c.resources.claims)
           ? JSONPatch{{op: 'add', path: {path}claims/-', value: {claim}}}
           : JSONPatch{{op: 'add', path: {path}claims', value: [{claim}]}}]
        ).flatten()"""
