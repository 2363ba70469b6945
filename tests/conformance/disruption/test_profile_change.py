"""Another profile for a while: if the stack file evicts pods, none is waited for."""

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.disruption.profile_change import change_profile, hold_through_change
from conformance.skips import NotApplicable


def test_spares_no_pod_under_a_policy_that_evicts() -> None:
    labels: dict[str, Any] = {"metadata": {"labels": {}}}
    change = SimpleNamespace(policy="evict")
    target: Any = SimpleNamespace(
        live=lambda _: labels, cluster=SimpleNamespace(change=change, profiles={})
    )
    node: Any = SimpleNamespace(name="n1")
    workload: Any = None
    with pytest.raises(NotApplicable, match=r"change.policy is evict: no pod is waited for"):
        change_profile(target, workload, node)
    with pytest.raises(NotApplicable, match=r"change.policy is evict: no pod is waited for"):
        hold_through_change(target, workload, node)
