"""Nodes of the deployed lab whose GPUs are given in limited shares for a while."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.deployment import Deployment

LIMITED = {
    "timeSlicing": {
        "replicas": 4,
        "memoryLimit": {"limit": "3000Mi", "action": "prevent"},
        "compute": "share",
    }
}


@contextmanager
def limited_shares(deployed: Deployment, *pools: str, one_each: bool = True) -> Iterator[None]:
    """Let pools follow a profile of limited shares, of which a container gets ``one_each``."""
    slicing = {**LIMITED["timeSlicing"], "failRequestsGreaterThanOne": one_each}
    with followed(deployed, {"timeSlicing": slicing}, *pools):
        yield


@contextmanager
def followed(deployed: Deployment, rule: Mapping[str, Any], *pools: str) -> Iterator[None]:
    """Let pools follow a profile of one rule."""
    with followed_rules(deployed, dict(rule), *pools):
        yield


@contextmanager
def followed_rules(
    deployed: Deployment, rules: dict[str, Any] | list[dict[str, Any]], *pools: str
) -> Iterator[None]:
    """Let pools follow a profile of these rules."""
    before = {pool: deployed.cluster["pools"][pool]["profile"] for pool in pools}
    deployed.cluster["profiles"]["limited"] = rules
    for pool in pools:
        deployed.set_profile(pool, "limited")
    deployed.up()
    try:
        yield
    finally:
        # `up` refuses while pods hold claims, also those that are just ending.
        deployed.until(deployed.is_unclaimed, 90)
        for pool, profile in before.items():
            deployed.set_profile(pool, profile)
        del deployed.cluster["profiles"]["limited"]
        deployed.up()
