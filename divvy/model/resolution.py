"""From a node to its desired state: labels → pool → profile → how each GPU is partitioned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Literal

from divvy.model.api_names import ALIAS_LABELS, PROFILE_LABEL
from divvy.model.claims import Claims
from divvy.model.enforcement import NodeCapabilities, driver_limits_problem
from divvy.model.gpu_models import GpuModel, UnknownGpuModel, is_memory_of
from divvy.model.hardware_model import hardware_model
from divvy.model.mig_placement import NoPlacement, place
from divvy.model.profile import Mps, Profile, Rule, TimeSlicing, clients_error
from divvy.model.resource_names import (
    gpu_resource,
    mig_resource,
    qualified,
)
from divvy.model.sharing import Enforcement, Sharing, sharing_of_replicas
from divvy.model.stack import Cluster, Hardware, Pool

WHOLE = -1
"""The rule number of a GPU that no rule selects."""


@dataclass(frozen=True)
class NodeFacts:
    """What is known of a node without looking at its GPUs."""

    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class GpuFacts:
    """What is known of one GPU of a node."""

    index: int
    uuid: str
    product: str
    memory_mib: int
    model: GpuModel | None
    compute_capability: tuple[int, int] | None = None


@dataclass(frozen=True)
class Selection:
    """Which profile a node follows and who says so.

    ``source`` is ``pool``, ``override`` or ``label:<key>``. With a ``problem``
    there is no profile: the caller keeps the last good one.
    """

    pool: str | None
    profile: str | None
    source: str
    problem: str | None


@dataclass(frozen=True)
class Offer:
    """One resource under which (a part of) a GPU is advertised.

    ``mig_profile`` is None for a whole GPU.
    """

    resource: str
    kind: Literal["gpu", "mig"]
    mig_profile: str | None
    sharing: Sharing = Sharing()

    @property
    def held_as(self) -> tuple[str, bool, bool]:
        """Return as what a pod holds it: the resource, whether it is shared, whether by MPS.

        A device is offered as something else only when no pod holds it.
        """
        return self.resource, self.sharing.is_shared, self.sharing.by_mps


@dataclass(frozen=True)
class DesiredGpu:
    """What one GPU should be: MIG instances (None: MIG off) and what is advertised of it.

    ``rule`` is the number of the rule that selected it, WHOLE if none did. With ``claims`` the
    device plugin offers nothing of it, and its MIG instances come and go with claims.
    """

    uuid: str
    index: int
    rule: int
    mig: Mapping[str, int] | None
    offers: tuple[Offer, ...]
    claims: Claims | None = None


@dataclass(frozen=True)
class DesiredNode:
    """What a node should be."""

    pool: str | None
    profile: str | None
    source: str
    gpus: tuple[DesiredGpu, ...]
    problems: tuple[str, ...]


def pool_of(cluster: Cluster, node: NodeFacts) -> str | None:
    """Return the name of the pool whose labels a node has, else of the default pool."""
    default = None
    for name, pool in cluster.pools.items():
        if pool.select is None:
            default = name
        elif all(node.labels.get(key) == value for key, value in pool.select.items()):
            return name
    return default


def select_profile(cluster: Cluster, node: NodeFacts) -> Selection:
    """Choose the profile of a node: its label, an alias label, an override, or its pool's."""
    pool = pool_of(cluster, node)
    wanted = node.labels.get(PROFILE_LABEL)
    if wanted:
        source = f"label:{PROFILE_LABEL}"
        if wanted in cluster.profiles:
            return Selection(pool, wanted, source, None)
        return Selection(pool, None, source, _unknown_profile(cluster, wanted))
    for key in ALIAS_LABELS:
        alias = node.labels.get(key)
        if alias in cluster.profiles:
            return Selection(pool, alias, f"label:{key}", None)
    if pool is None:
        return Selection(None, None, "pool", None)
    override = cluster.pools[pool].overrides.get(node.name)
    if override is not None:
        return Selection(pool, override, "override", None)
    return Selection(pool, cluster.pools[pool].profile, "pool", None)


def resolve(
    cluster: Cluster,
    selection: Selection,
    gpus: Sequence[GpuFacts],
    assignment: Mapping[int, str] | None = None,
    capabilities: NodeCapabilities | None = None,
) -> DesiredNode:
    """Return what every GPU of a node should be.

    ``assignment`` maps the indices of the rules to the UUIDs they meant when
    they were first seen; without it the driver's order counts. A GPU that its
    rule does not fit is advertised whole and the reason is among the problems. ``capabilities``
    decide what `enforcement: auto` comes to; without them it stays open.
    """
    if selection.profile is None:
        return DesiredNode(selection.pool, None, selection.source, (), _no_profile(selection))
    profile = cluster.profiles[selection.profile]
    problems: list[str] = []
    if selection.pool is not None:
        problems += _hardware_problems(cluster.pools[selection.pool], gpus)
    index_of = {uuid: index for index, uuid in (assignment or {}).items()}
    desired = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        index = index_of.get(gpu.uuid) if assignment else gpu.index
        gpu_state, problem = _desired_gpu(profile, gpu, index)
        if capabilities is not None:
            gpu_state = replace(gpu_state, offers=_reached(gpu_state.offers, capabilities))
        desired.append(gpu_state)
        if problem:
            problems.append(problem)
    return DesiredNode(
        selection.pool, selection.profile, selection.source, tuple(desired), tuple(problems)
    )


def rule_for(profile: Profile, index: int | None, uuid: str, names: tuple[str, ...]) -> int:
    """Return the number of the first rule that takes a GPU, WHOLE if none does."""
    for number, rule in enumerate(profile.rules):
        if rule.devices.takes(index, uuid, names):
            return number
    return WHOLE


def rules_by_gpu(profile: Profile, hardware: Hardware, model: GpuModel) -> dict[int, int]:
    """Return the number of the rule that takes each GPU of a pool's nodes, by index."""
    names = (model.name, *model.products)
    return {gpu: rule_for(profile, gpu, "", names) for gpu in range(hardware.gpus)}


def offers(rule: Rule, model_memory_mib: int, model: GpuModel | None) -> tuple[Offer, ...]:
    """Return what a rule offers of one GPU, in the order of the layout."""
    slicing = rule.sharing
    if rule.mig is None:
        name = _shared_name(slicing, gpu_resource(), gpu_resource(shared=True))
        return (Offer(name, "gpu", None, sharing_of_replicas(slicing, model_memory_mib)),)
    single = rule.mig.strategy == "single"
    listed = []
    for profile in sorted(rule.mig.layout, reverse=True):
        plain = gpu_resource() if single else mig_resource(profile)
        shared = gpu_resource(shared=True) if single else mig_resource(profile, shared=True)
        name = _shared_name(slicing, plain, shared)
        known = model.mig.profile(profile) if model is not None and model.mig else None
        memory = known.memory_mib if known else None
        # The driver limits the memory of whole GPUs alone.
        sharing = replace(sharing_of_replicas(slicing, memory), enforcement="limiter")
        listed.append(Offer(name, "mig", profile, sharing))
    return tuple(listed)


def _reached(offered: tuple[Offer, ...], capabilities: NodeCapabilities) -> tuple[Offer, ...]:
    """Return the offers with what refuses memory on a node, where a rule leaves it open."""
    strongest: Enforcement = "limiter" if driver_limits_problem(capabilities) else "driver"
    return tuple(
        replace(offer, sharing=replace(offer.sharing, enforcement=strongest))
        if offer.sharing.enforcement == "auto"
        else offer
        for offer in offered
    )


def _shared_name(slicing: TimeSlicing | Mps | None, plain: str, renamed: str) -> str:
    if slicing is None:
        return plain
    if slicing.resource_name is not None:
        return qualified(slicing.resource_name)
    return renamed if slicing.rename_by_default else plain


def _desired_gpu(
    profile: Profile, gpu: GpuFacts, index: int | None
) -> tuple[DesiredGpu, str | None]:
    names = (gpu.product, gpu.model.name) if gpu.model else (gpu.product,)
    number = rule_for(profile, index, gpu.uuid, names)
    if profile.by_claims:
        rule = Rule() if number == WHOLE else profile.rules[number]
        claims = rule.claims or Claims()
        return DesiredGpu(gpu.uuid, gpu.index, number, None, (), claims), _lacking(claims, gpu)
    whole = DesiredGpu(gpu.uuid, gpu.index, WHOLE, None, offers(Rule(), gpu.memory_mib, gpu.model))
    if number == WHOLE:
        return whole, None
    rule = profile.rules[number]
    if rule.mps is not None and gpu.compute_capability is not None:
        error = clients_error(rule.mps.replicas, gpu.compute_capability)
        if error:
            return whole, f"GPU {gpu.index} ({gpu.product}) is advertised whole: {error}"
    if rule.mig is not None:
        misfit = _misfit(rule, gpu)
        if misfit:
            return whole, f"GPU {gpu.index} ({gpu.product}) is advertised whole: {misfit}"
    layout = None if rule.mig is None else rule.mig.layout
    offered = offers(rule, gpu.memory_mib, gpu.model)
    return DesiredGpu(gpu.uuid, gpu.index, number, layout, offered), None


def _lacking(claims: Claims, gpu: GpuFacts) -> str | None:
    """Return which MIG profiles of a rule a GPU does not have, None if it has them all."""
    geometry = None if gpu.model is None else gpu.model.mig
    missing = [name for name in claims.mig if geometry is None or not geometry.profile(name)]
    if not missing:
        return None
    return (
        f"GPU {gpu.index} ({gpu.product}) has no MIG profile {', '.join(missing)}: "
        "claims get the rest"
    )


def _misfit(rule: Rule, gpu: GpuFacts) -> str | None:
    """Return why a GPU cannot take the MIG layout of a rule, None if it can."""
    if gpu.model is None or not gpu.model.is_described:
        return "its model is unknown, and with it its MIG geometry"
    if gpu.model.mig is None:
        unpublished = gpu.model.mig_unpublished
        return unpublished or f"{gpu.model.name} has no MIG"
    assert rule.mig is not None
    try:
        place(gpu.model.mig, rule.mig.layout)
    except NoPlacement as refusal:
        return str(refusal)
    return None


def _hardware_problems(pool: Pool, gpus: Sequence[GpuFacts]) -> list[str]:
    if pool.hardware is None or not gpus:
        return []
    problems = []
    if len(gpus) != pool.hardware.gpus:
        problems.append(
            f"the node has {len(gpus)} GPUs, but the stack file says {pool.hardware.gpus}"
        )
    try:
        wanted = hardware_model(pool.hardware)
    except UnknownGpuModel:
        return problems
    others = sorted({gpu.product for gpu in gpus if not _is_of(wanted, gpu)})
    if others:
        problems.append(f"the node has {', '.join(others)}, but the stack file says {wanted.name}")
    return problems


def _is_of(model: GpuModel, gpu: GpuFacts) -> bool:
    """Return whether a GPU may be of a model: one without data has no name to compare."""
    if model.is_described:
        return gpu.model == model
    return (gpu.model is None or not gpu.model.is_described) and is_memory_of(model, gpu.memory_mib)


def _no_profile(selection: Selection) -> tuple[str, ...]:
    if selection.problem is not None:
        return (selection.problem,)
    return ("no pool of the stack file selects this node: nothing is advertised",)


def _unknown_profile(cluster: Cluster, wanted: str) -> str:
    nearest = get_close_matches(wanted, cluster.profiles, n=1)
    guess = f"; did you mean {nearest[0]}?" if nearest else ""
    return (
        f"label {PROFILE_LABEL}={wanted} names no profile{guess} "
        f"(profiles: {', '.join(sorted(cluster.profiles))})"
    )
