"""Checks the scheduler's claims for extended resources against ResourceQuotas.

A pod passes the quota of the resource itself when it is created. Its claim passes the quotas of
claims only when the scheduler has found a node: a pod can wait for devices that it may not get
(pkg/quota/v1/evaluator/core/resource_claims.go and the quota admission of Kubernetes 1.36, 1.37).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from divvy.model.api_names import CLAIM_COUNT_QUOTA, CLASS_QUOTA, CLASS_RESOURCE
from divvy.model.quantities import parse_quantity
from divvy.plan.fit.claim_requests import Request

Usage = Mapping[str, int]
# What the evaluator takes for a request of all devices.
_MAX_RESULTS = 32


def usage_of_resources(requests: Mapping[str, Fraction], kinds: Mapping[str, Request]) -> Usage:
    """Return what the one claim for extended resources of a pod counts for, by names of quotas.

    ``kinds`` are those that claims serve. The resources themselves are not among it: the pod
    counts for them.
    """
    usage: Counter[str] = Counter()
    for resource in kinds.keys() & requests.keys():
        usage += _of_class(kinds[resource].device_class, int(requests[resource]))
    return usage + Counter({CLAIM_COUNT_QUOTA: 1}) if usage else {}


def usage_of_claim(claim: Mapping[str, Any]) -> Usage:
    """Return what a claim counts for; of alternatives the most of each class."""
    usage: Counter[str] = Counter({CLAIM_COUNT_QUOTA: 1})
    for request in (claim["spec"].get("devices") or {}).get("requests") or ():
        most: dict[str, int] = {}
        for option in request.get("firstAvailable") or [request.get("exactly") or {}]:
            takes_all = option.get("allocationMode") == "All"
            count = _MAX_RESULTS if takes_all else int(option.get("count") or 1)
            name = option.get("deviceClassName", "")
            most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            usage += _of_class(name, count)
    return usage


def has_scopes(quota: Mapping[str, Any]) -> bool:
    """Return whether a quota is for some pods only, and so counts no claims."""
    spec = quota.get("spec") or {}
    return bool(spec.get("scopes") or spec.get("scopeSelector"))


class ClaimQuotas:
    """What the quotas of each namespace have left for claims; a quota with a scope counts none."""

    def __init__(self, quotas: Iterable[Mapping[str, Any]]) -> None:
        # Of each namespace the name of each quota, what it allows, and what of it is used.
        self._limits: dict[str, list[tuple[str, Mapping[str, Any], Mapping[str, Any]]]] = {}
        for quota in quotas:
            meta = quota["metadata"]
            if not has_scopes(quota):
                status = quota.get("status") or {}
                # What has no status yet has it in a moment, and refuses by it.
                hard = {
                    **((quota.get("spec") or {}).get("hard") or {}),
                    **(status.get("hard") or {}),
                }
                limits = meta["name"], hard, status.get("used") or {}
                self._limits.setdefault(meta["namespace"], []).append(limits)
        self._charged: dict[str, Counter[str]] = {}

    def limits(self, namespace: str) -> bool:
        """Return whether a namespace has a quota at all."""
        return namespace in self._limits

    def refusal(self, namespace: str, usage: Usage, freed: Usage) -> str:
        """Return the quota that refuses a claim, and why; "" for none.

        ``freed`` is what claims count for that will be gone by then.
        """
        charged = self._charged.get(namespace, Counter())
        for quota, hard, used in self._limits.get(namespace, ()):
            for name in sorted(hard):
                if name not in used and _counts_claims(name):
                    return f"the ResourceQuota {quota} has not been counted yet for {name}"
                if name not in usage:
                    continue
                needed = charged[name] + usage[name] - freed.get(name, 0)
                if parse_quantity(used[name]) + needed > parse_quantity(hard[name]):
                    return f"the ResourceQuota {quota} has no {name} left for its claim"
        return ""

    def charge(self, namespace: str, usage: Usage) -> None:
        """Count a claim from now on."""
        self._charged.setdefault(namespace, Counter()).update(usage)


def _of_class(name: str, count: int) -> Counter[str]:
    return Counter({f"{name}{CLASS_QUOTA}": count, f"requests.{CLASS_RESOURCE}{name}": count})


def _counts_claims(name: str) -> bool:
    by_class = name.endswith(CLASS_QUOTA) or name.startswith(f"requests.{CLASS_RESOURCE}")
    return by_class or name == CLAIM_COUNT_QUOTA
