"""A whole stack in the words of the GPU Operator, or the reasons why it cannot be said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from divvy.model import Cluster, Pool
from divvy.model.stack import Hardware
from divvy.render.exports.operator.gpu_cluster import DraDriver, dra_driver
from divvy.render.exports.operator.profile import NvidiaProfile, Refusal, nvidia_profile

Uses = list[tuple[str, str | None, str, Hardware | None]]


@dataclass(frozen=True)
class Translation:
    """Every profile that the chosen pools use, as configurations; and what is refused.

    ``claims`` is the driver of the operator's second stack, which serves claims on all nodes.
    """

    pools: Mapping[str, Pool]
    profiles: Mapping[str, NvidiaProfile]
    refusals: tuple[Refusal, ...]
    notes: tuple[str, ...] = field(default=())
    claims: DraDriver | None = None

    @property
    def strategy(self) -> str:
        """Return the MIG strategy of the cluster."""
        names = {name for profile in self.profiles.values() for name in profile.strategies}
        return min(names) if names else "none"

    @property
    def default(self) -> Pool | None:
        """Return the pool that takes every GPU node which no other pool selects."""
        return next((pool for pool in self.pools.values() if pool.select is None), None)


def translate(cluster: Cluster, only: Iterable[str] = ()) -> Translation:
    """Translate a cluster, or some of its pools."""
    wanted = set(only)
    pools = {name: pool for name, pool in cluster.pools.items() if not wanted or name in wanted}
    if all(cluster.profiles[name].by_claims for _, _, name, _ in _uses(pools)):
        return _by_claims(cluster, pools)
    profiles: dict[str, NvidiaProfile] = {}
    unexpressed: dict[str, NvidiaProfile] = {}
    first: dict[str, str] = {}
    refusals: list[Refusal] = []
    listed: set[tuple[str, str, str]] = set()
    for pool, node, name, hardware in _uses(pools):
        where = _where(pool, node)
        profile, reasons = nvidia_profile(name, cluster.profiles[name], hardware, where)
        for reason in reasons:
            # One line says it for all pools.
            if (name, reason.key, reason.reason) not in listed:
                refusals.append(reason)
            listed.add((name, reason.key, reason.reason))
        if not all(reason.droppable for reason in reasons):
            unexpressed.setdefault(name, profile)
            continue
        if profiles.setdefault(name, profile) != profile:
            text = f"means something else than in {first[name]}, and has one name for the cluster"
            refusals.append(Refusal(f"profile {name}", where, text))
        first.setdefault(name, where)
    # A profile means what it does where it can be expressed, if it can anywhere.
    profiles = unexpressed | profiles
    refusals += _strategies(pools, profiles)
    refusals += _promises(cluster, cuts=any(profile.cut for profile in profiles.values()))
    return Translation(pools, profiles, tuple(refusals), tuple(_notes(cluster, pools, profiles)))


def _by_claims(cluster: Cluster, pools: Mapping[str, Pool]) -> Translation:
    uses = [(_where(pool, node), cluster.profiles[name]) for pool, node, name, _ in _uses(pools)]
    driver, refusals = dra_driver(cluster, uses)
    refusals += _promises(cluster, cuts=False)
    notes = ["the operator's GPUCluster is for new clusters: it replaces no ClusterPolicy in place"]
    if driver.mig:
        notes.append(
            "a GPU older than Hopper needs MIG mode on before the driver makes MIG devices"
        )
    return Translation(pools, {}, tuple(refusals), tuple(notes), driver)


def _where(pool: str, node: str | None) -> str:
    return f"pool {pool}" + (f", node {node}" if node else "")


def _uses(pools: Mapping[str, Pool]) -> Uses:
    uses: Uses = []
    for name, pool in pools.items():
        uses.append((name, None, pool.profile, pool.hardware))
        uses += [(name, node, profile, pool.hardware) for node, profile in pool.overrides.items()]
    return uses


def _strategies(
    pools: Mapping[str, Pool], profiles: Mapping[str, NvidiaProfile]
) -> Iterator[Refusal]:
    """Refuse a second MIG strategy: the operator sets it for all nodes by an environment value."""
    by_strategy: dict[str, list[str]] = {}
    for pool, _, name, _ in _uses(pools):
        for strategy in profiles[name].strategies:
            by_strategy.setdefault(strategy, []).append(pool)
    if len(by_strategy) > 1:
        text = " and ".join(
            f"{strategy} in {', '.join(dict.fromkeys(names))}"
            for strategy, names in sorted(by_strategy.items())
        )
        yield Refusal("mig.strategy", "pools", f"{text}: the operator has one for the cluster")


def _promises(cluster: Cluster, *, cuts: bool) -> Iterator[Refusal]:
    """Refuse what the stack file says outright and NVIDIA's tools do otherwise."""
    if "change" in cluster.model_fields_set and cuts:
        reason = (
            f"policy {cluster.change.policy}: mig-manager reconfigures when a node's label "
            "changes; it neither waits for pods nor evicts them, and fails if a GPU is held"
        )
        yield Refusal("change", "cluster", reason, droppable=True)
    if "recover_after" in cluster.health.model_fields_set:
        reason = "NVIDIA's plugin advertises a GPU that was unhealthy again only after its restart"
        yield Refusal("health.recoverAfter", "cluster", reason, droppable=True)
    for device in cluster.devices:
        reason = f"{device.resource}: the operator serves NVIDIA's GPUs alone"
        yield Refusal("devices", "cluster", reason, droppable=True)


def _notes(
    cluster: Cluster, pools: Mapping[str, Pool], profiles: Mapping[str, NvidiaProfile]
) -> Iterator[str]:
    if "change" not in cluster.model_fields_set and any(
        profile.cut for profile in profiles.values()
    ):
        yield "mig-manager does not wait for pods: a node's GPUs must be idle when it is labelled"
    runtimes = sorted({pool.runtime.name for pool in pools.values()})
    if len(runtimes) > 1:
        yield f"pools have {' and '.join(runtimes)}: the operator looks for itself on every node"
