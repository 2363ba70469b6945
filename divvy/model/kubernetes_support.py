"""The versions of Kubernetes that can serve claims, with what was measured."""

from collections.abc import Iterator

from divvy.model.stack import Cluster
from divvy.model.versions import version_numbers

# Shares with counters are allocated twice in 1.36.0 and 1.36.1 (kubernetes/kubernetes #139034).
SHARES_SINCE = (1, 36, 2)
# Before, counters of all nodes are read for each node (kubernetes/kubernetes #138917).
COUNTERS_SCALE_SINCE = (1, 37)
MAX_COUNTED_NODES = 20


def floor_problems(cluster: Cluster, version: str) -> tuple[str, ...]:
    """Return what this version of Kubernetes (``v1.36.3``) cannot serve of a stack's claims."""
    users = _users(cluster)
    if not users or version_numbers(version) >= SHARES_SINCE:
        return ()
    least = ".".join(map(str, SHARES_SINCE))
    names = ", ".join(users)
    return (
        f"Kubernetes is {version}, and profiles with `claims` ({names}) need {least} or newer: "
        "1.36.0 and 1.36.1 can allocate one GPU twice, and older ones cannot divide devices",
    )


def floor_warnings(cluster: Cluster, version: str) -> tuple[str, ...]:
    """Return what this version of Kubernetes serves slowly."""
    if version_numbers(version) >= COUNTERS_SCALE_SINCE:
        return ()
    nodes = sum(_counted_nodes(cluster))
    if nodes <= MAX_COUNTED_NODES:
        return ()
    return (
        f"{nodes} nodes have GPUs that are whole, shared or divided on demand: below Kubernetes "
        f"1.37 the scheduler's work for each pod grows with all of them (100 nodes: 0.4 pods a "
        f"second; this cluster runs {version}); `claims: {{shares: {{}}}}` has no such limit",
    )


def _users(cluster: Cluster) -> tuple[str, ...]:
    return tuple(name for name, profile in cluster.profiles.items() if profile.by_claims)


def _counted_nodes(cluster: Cluster) -> Iterator[int]:
    counted = {
        name
        for name, profile in cluster.profiles.items()
        if any(rule.claims is not None and rule.claims.counted for rule in profile.rules)
    }
    for pool in cluster.pools.values():
        count = 0 if pool.hardware is None else pool.hardware.count
        if pool.profile in counted:
            yield max(0, count - len(pool.overrides))
        yield sum(profile in counted for profile in pool.overrides.values())
