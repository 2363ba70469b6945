"""What Divvy ignores in a pod is said to whoever creates it."""

from __future__ import annotations

import pytest

from tests.render.objects.claims.api_server import GPU, MEMORY, ApiServer, Limits, init, pod

pytestmark = pytest.mark.lab
PRIORITY = "nvidia.com/priority"
NUMA, POLICY = "nvidia.com/numa-bind", "hami.io/gpu-scheduler-policy"
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
AGAIN = (
    "this pod cannot be applied again, since its limits have become claims; delete it first, or "
    "use a Deployment or a Job"
)


@pytest.mark.parametrize("limits", [{GPU: 1}, {MEMORY: 3000}])
def test_warns_of_ignored_annotations(server: ApiServer, limits: Limits) -> None:
    answer = server.dry_run(pod(limits, annotations={NUMA: "true", POLICY: "binpack"}))
    assert answer.refusal == ""
    assert answer.warnings == (f"Divvy ignores the annotations {NUMA}, {POLICY}",)


def test_warns_no_pods_without_gpus(server: ApiServer) -> None:
    answer = server.dry_run(pod({"cpu": 1}, annotations={NUMA: "true", APPLIED: "{}"}))
    assert (answer.refusal, answer.warnings) == ("", ())


@pytest.mark.parametrize("limits", [{GPU: 1}, {MEMORY: 3000}, {GPU: 2, MEMORY: 3000}])
def test_removes_hamis_priority_and_warns(server: ApiServer, limits: Limits) -> None:
    asking = pod(limits, {"cpu": 1}, initContainers=[init({PRIORITY: 0})])
    resources = asking["spec"]["containers"][0]["resources"]
    resources["limits"][PRIORITY] = 1
    resources["requests"] = {PRIORITY: 1}
    answer = server.dry_run(asking)
    assert answer.refusal == ""
    listed = [*answer.resources(), *answer.resources("initContainers")]
    for part in ("limits", "requests"):
        assert all(PRIORITY not in resources.get(part, {}) for resources in listed)
    assert answer.warnings == (
        f"Divvy ignores the limit {PRIORITY}; a share with more cores gets more time",
    )
    assert bool(answer.templates) == (MEMORY in limits)


def test_warns_of_a_bare_pod_that_cannot_be_applied_again(server: ApiServer) -> None:
    applied = {APPLIED: "{}"}
    assert server.dry_run(pod({MEMORY: 3000}, annotations=applied)).warnings == (AGAIN,)
    assert server.dry_run(pod({MEMORY: 3000})).warnings == ()
    assert server.dry_run(pod({GPU: 1}, annotations=applied)).warnings == ()
    owned = pod({MEMORY: 3000}, annotations=applied)
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1"}
    ]
    assert server.dry_run(owned).warnings == ()
