"""Claims in the words of the operator's second stack, GPUCluster: one DRA driver for all nodes.

Source: NVIDIA/gpu-operator 26.7, api/nvidia/v1alpha1/gpucluster_types.go and the chart's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from divvy.model import Cluster
from divvy.model.claims import Claims
from divvy.model.profile import Profile
from divvy.model.stack import Names
from divvy.render.exports.operator.profile import Refusal


@dataclass(frozen=True)
class DraDriver:
    """What the one driver of a cluster is to do: make MIG devices, count shares by memory."""

    mig: bool = False
    shares: bool = False

    def values(self) -> dict[str, Any]:
        """Return the chart's values that choose this stack."""
        gates = {"DynamicMIG": self.mig, "ConsumableShares": self.shares}
        driver: dict[str, Any] = {"featureGates": {name: on for name, on in gates.items() if on}}
        if self.shares:
            mode = {"name": "CONSUMABLE_SHARES", "value": "memory"}
            driver["gpus"] = {"kubeletPlugin": {"env": [mode]}}
        return {
            "clusterPolicy": {"deployCR": False},
            "gpuCluster": {"deployCR": True},
            "draDriver": driver,
        }


def dra_driver(
    cluster: Cluster, uses: Iterable[tuple[str, Profile]]
) -> tuple[DraDriver, list[Refusal]]:
    """Return the driver that serves profiles with claims, by where they are used, and what not."""
    refusals: dict[tuple[str, str], Refusal] = {}
    drivers: dict[DraDriver, str] = {}
    for where, profile in uses:
        for claims in _claims(profile):
            wanted = DraDriver(bool(claims.mig), claims.shares is not None)
            drivers.setdefault(wanted, where)
            for refusal in _refused(claims, where):
                refusals.setdefault((refusal.key, refusal.reason), refusal)
    if len(drivers) > 1:
        first, second, *_ = drivers.values()
        text = "differs: the operator has one DRA driver, with one configuration for all nodes"
        refusals["claims", text] = Refusal("claims", f"{first}, {second}", text)
    for refusal in _policies(cluster, shares=any(driver.shares for driver in drivers)):
        refusals[refusal.key, refusal.reason] = refusal
    return next(iter(drivers)), list(refusals.values())


def _claims(profile: Profile) -> Sequence[Claims]:
    """Return what each rule lets pods claim: the whole GPU where it does not say."""
    return [rule.claims or Claims() for rule in profile.rules]


def _refused(claims: Claims, where: str) -> Iterator[Refusal]:
    if claims.tenants:
        reason = "the driver keeps no tenants apart on a GPU"
        yield Refusal("claims.tenants", where, reason)
    if claims.shares is not None:
        reason = "the driver counts a share's memory, and nothing holds a pod to it or divides time"
        yield Refusal("claims.shares", where, reason, droppable=True)
    if claims.mig:
        reason = "the driver makes any profile of a GPU, and no class stands for nvidia.com/mig-…"
        yield Refusal("claims.mig", where, reason, droppable=True)


def _policies(cluster: Cluster, *, shares: bool) -> Iterator[Refusal]:
    names, defaults = cluster.names, Names()
    if names.gpu != defaults.gpu:
        yield Refusal("names.gpu", "cluster", f"the class gpu.nvidia.com stands for {defaults.gpu}")
    if shares:
        reason = f"nothing makes a claim of {names.memory} and {names.cores}: pods need claims"
        yield Refusal("names", "cluster", reason, droppable=True)
    if shares and cluster.quota.shares == "required":
        reason = "nothing refuses shares in a namespace without a quota for them"
        yield Refusal("quota.shares", "cluster", reason, droppable=True)
