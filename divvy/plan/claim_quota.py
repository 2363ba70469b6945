"""Whether ResourceQuotas admit the claim that the scheduler creates for an extended resource.

A pod passes the quota of the resource itself when it is created. Its claim passes the quotas of
claims only when the scheduler has found a node: a pod can wait for devices that it may not get
(pkg/quota/v1/evaluator/core/resource_claims.go of Kubernetes 1.36 and 1.37).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from divvy.model.claim_names import GPU_CLASS, mig_class, share_class
from divvy.model.contract import CLAIM_COUNT_QUOTA, CLASS_QUOTA, CLASS_RESOURCE
from divvy.model.quantities import parse_quantity
from divvy.plan.claim_requests import Request

_Usage = Mapping[str, Fraction]


class ClaimQuotas:
    """What the quotas of all namespaces have left for claims, as claims are charged to them.

    ``kinds`` are the extended resources that claims serve. A quota with a scope counts no claims.
    """

    def __init__(self, quotas: Iterable[Mapping[str, Any]], kinds: Mapping[str, Request]) -> None:
        self._classes = {resource: _device_class(request) for resource, request in kinds.items()}
        self._quotas: dict[str, list[Mapping[str, Any]]] = {}
        for quota in quotas:
            spec = quota.get("spec") or {}
            if not spec.get("scopes") and not spec.get("scopeSelector"):
                self._quotas.setdefault(quota["metadata"]["namespace"], []).append(quota)
        self._charged: dict[str, Counter[str]] = {}

    def refusal(self, namespace: str, requests: _Usage) -> str:
        """Return the quota that refuses the claim for a pod's requests and why, "" for none."""
        charged = self._charged.get(namespace, Counter())
        for quota in self._quotas.get(namespace, ()) if self._usage(requests) else ():
            hard = (quota.get("spec") or {}).get("hard") or {}
            used = (quota.get("status") or {}).get("used") or {}
            for name, number in self._usage(requests).items():
                if name not in hard:
                    continue
                problem = (
                    f"has not been counted yet for {name}"
                    if name not in used
                    else f"has no {name} left for its claim"
                    if parse_quantity(used[name]) + charged[name] + number
                    > parse_quantity(hard[name])
                    else ""
                )
                if problem:
                    return f"the ResourceQuota {quota['metadata']['name']} {problem}"
        return ""

    def charge(self, namespace: str, requests: _Usage) -> None:
        """Count the claim for a pod's requests from now on."""
        for name, number in self._usage(requests).items():
            self._charged.setdefault(namespace, Counter())[name] += int(number)

    def _usage(self, requests: _Usage) -> dict[str, Fraction]:
        """Return what the one claim for all extended resources of a pod counts for.

        The resource itself is not among it: the pod counts for that.
        """
        usage: dict[str, Fraction] = {}
        for resource in self._classes.keys() & requests.keys():
            device_class = self._classes[resource]
            usage[f"{device_class}{CLASS_QUOTA}"] = requests[resource]
            usage[f"requests.{CLASS_RESOURCE}{device_class}"] = requests[resource]
        return dict(sorted(usage.items())) | ({CLAIM_COUNT_QUOTA: Fraction(1)} if usage else {})


def _device_class(request: Request) -> str:
    if request.profile is not None:
        return mig_class(request.profile)
    return GPU_CLASS if request.kind == "gpu" else share_class(None)
