"""Checks of profiles on the hardware of the pools that use them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from divvy.model.gpu_models import GpuModel, UnknownGpuModel, gpu_models, is_memory_of
from divvy.model.hardware_model import hardware_model
from divvy.model.mig_names import is_profile_name
from divvy.model.mig_placement import NoPlacement, describe_layout, nearest_layouts, place
from divvy.model.problems import Keys, Problem, problem
from divvy.model.profile import MAX_MPS_CLIENTS_BEFORE_VOLTA, Profile, Rule, clients_error
from divvy.model.resolution import WHOLE, Offer, offers, rules_by_gpu
from divvy.model.resource_names import VENDOR
from divvy.model.stack import Cluster, Hardware


@dataclass(frozen=True)
class _Use:
    """A profile as a pool, or one node of it, uses it."""

    pool: str
    profile: str
    node: str | None

    def __str__(self) -> str:
        return f"profile {self.profile}" + (f" on node {self.node}" if self.node else "")


def check_pool_hardware(cluster: Cluster) -> list[Problem]:
    """Return what does not fit the hardware that the pools are said to have."""
    problems: list[Problem] = []
    for name, pool in cluster.pools.items():
        if pool.hardware is None:
            continue
        try:
            model = hardware_model(pool.hardware)
        except UnknownGpuModel as unknown:
            remedy = f"{unknown.remedy}; for another one write its `memory`, too"
            keys = ("pools", name, "hardware", "model")
            problems.append(problem(keys, f"unknown GPU model {unknown.name!r}", remedy))
            continue
        memory = pool.hardware.memory_mib
        if memory is not None and not is_memory_of(model, memory):
            keys = ("pools", name, "hardware", "memory")
            wrong = f"is {memory} MiB, and {model.name} has {model.memory_mib}"
            problems.append(problem(keys, wrong, "leave it out: it is known"))
        uses = [_Use(name, pool.profile, None)]
        uses += [_Use(name, profile, node) for node, profile in pool.overrides.items()]
        first_use = {use.profile: use for use in reversed(uses) if use.profile in cluster.profiles}
        for profile, use in first_use.items():
            problems += _fits(cluster.profiles[profile], use, pool.hardware, model)
        in_order = sorted(
            first_use.values(), key=lambda use: (use.node is not None, use.node or "")
        )
        problems += _one_meaning(cluster, in_order, pool.hardware, model)
    return problems


def check_unused_profiles(cluster: Cluster) -> list[Problem]:
    """Return layouts that no model at all can hold, in profiles that no known hardware tests."""
    tested = {
        profile
        for pool in cluster.pools.values()
        if pool.hardware is not None
        for profile in (pool.profile, *pool.overrides.values())
    }
    problems = []
    for name, profile in cluster.profiles.items():
        if name in tested:
            continue
        for index, rule in enumerate(profile.rules):
            if rule.mig is None or not all(map(is_profile_name, rule.mig.layout)):
                continue
            refusal = _refused_everywhere(rule.mig.layout)
            if refusal:
                keys = (*profile.keys_of(name, index), "mig")
                problems.append(problem(keys, f"fits no GPU model: {refusal}"))
    return problems


def single_error(rules: Mapping[int, Rule | None]) -> str | None:
    """Return why a node's GPUs (by index, with rules) break the single strategy, None if not."""
    singles = {index: rule for index, rule in rules.items() if _strategy(rule) == "single"}
    if not singles:
        return None
    others = [index for index in rules if index not in singles]
    if others:
        what = "MIG with strategy mixed" if _strategy(rules[others[0]]) == "mixed" else "whole"
        return f"GPU {others[0]} of the node is {what}"
    profiles = sorted(
        {name for rule in singles.values() if rule and rule.mig for name in rule.mig.layout}
    )
    if len(profiles) > 1:
        return f"the node has {' and '.join(profiles)}"
    return None


def _strategy(rule: Rule | None) -> str | None:
    return None if rule is None or rule.mig is None else rule.mig.strategy


def _fits(profile: Profile, use: _Use, hardware: Hardware, model: GpuModel) -> Iterator[Problem]:
    where = f"{model.name} (pool {use.pool})"
    selected_rules = {*rules_by_gpu(profile, hardware, model).values()}
    for index, rule in enumerate(profile.rules):
        keys = profile.keys_of(use.profile, index)
        for gpu in rule.devices.indices:
            if gpu >= hardware.gpus:
                yield problem(
                    (*keys, "devices"),
                    f"selects GPU {gpu}, and a node of pool {use.pool} has {hardware.gpus}",
                    f"indices are 0 to {hardware.gpus - 1}",
                )
        # A rule for other models of a shared profile says nothing about this pool.
        if rule.devices.model is not None and index not in selected_rules:
            continue
        if rule.mig is not None:
            yield from _layout_fits(rule.mig.layout, keys, model, where)
        yield from _limit_fits(rule, keys, model)
        yield from _memory_is_its_own(rule, keys, model, where)
        yield from _clients_fit(rule, keys, model, where)


def _layout_fits(
    layout: Mapping[str, int], keys: Keys, model: GpuModel, where: str
) -> Iterator[Problem]:
    if model.mig is None and (model.mig_unpublished or not model.is_described):
        yield problem(
            (*keys, "mig"),
            f"the MIG profiles of {where} are not known"
            + (f": {model.mig_unpublished}" if model.mig_unpublished else ""),
            "offer it whole or with timeSlicing",
        )
        return
    if model.mig is None:
        able = ", ".join(name for name, known in gpu_models().items() if known.mig)
        yield problem((*keys, "mig"), f"{where} has no MIG", f"models with MIG: {able}")
        return
    lacking = [name for name in layout if is_profile_name(name) and not model.mig.profile(name)]
    for name in lacking:
        has = ", ".join(profile.name for profile in model.mig.profiles)
        has += f" ({model.mig_unpublished})" if model.mig_unpublished else ""
        yield problem((*keys, "mig", name), f"{where} has no MIG profile {name}", f"it has {has}")
    if lacking or not all(map(is_profile_name, layout)):
        return
    try:
        place(model.mig, layout)
    except NoPlacement as refusal:
        near = " or ".join(describe_layout(known) for known in nearest_layouts(model.mig, layout))
        yield problem(
            (*keys, "mig"),
            f"{describe_layout(layout)} has no placement on {where}: {refusal}",
            f"nearest that fit: {near}",
        )


def _limit_fits(rule: Rule, keys: Keys, model: GpuModel) -> Iterator[Problem]:
    limit = rule.sharing.memory_limit if rule.sharing else None
    if limit is None:
        return
    way = "mps" if rule.mps is not None else "timeSlicing"
    for offer in offers(rule, model.memory_mib, model):
        known = model.mig.profile(offer.mig_profile) if model.mig and offer.mig_profile else None
        memory = known.memory_mib if known else model.memory_mib
        sharing, name = offer.sharing, offer.mig_profile or model.name
        limit_mib, replicas = sharing.memory_mib or 0, sharing.replicas
        room = int(memory * limit.oversubscribe)
        where: Keys = (*keys, way, "memoryLimit")
        if limit_mib > memory:
            cure = "lower it, or write auto"
            if limit.limit == "auto":
                cure = f"`oversubscribe: {replicas}` at most"
            yield problem(where, f"is {limit_mib} MiB, more than the {memory} MiB of {name}", cure)
        elif (sharing.is_prevented or sharing.by_mps) and limit_mib * replicas > room:
            more = (
                ""
                if sharing.by_mps
                else "; or `oversubscribe`, which puts what does not fit into host memory"
            )
            yield problem(
                where,
                f"for {replicas} replicas is {limit_mib * replicas} MiB, more than the "
                f"{room} MiB of {name}: the last replicas would not get theirs",
                f"{room // replicas}Mi at most, or write auto{more}",
            )


def _memory_is_its_own(rule: Rule, keys: Keys, model: GpuModel, where: str) -> Iterator[Problem]:
    """Refuse limits of memory that processes use without asking the driver: the node's."""
    if not model.memory_of_system:
        return
    limit = rule.sharing.memory_limit if rule.sharing else None
    if rule.claims is not None and rule.claims.shares is not None:
        limiting: Keys = ("claims", "shares")
    elif limit is not None and limit.action == "prevent":
        limiting = ("mps" if rule.mps is not None else "timeSlicing", "memoryLimit")
    else:
        return
    yield problem(
        (*keys, *limiting),
        f"cannot hold on {where}, which has no memory of its own: any process can use the node's",
        "offer it whole, or with timeSlicing and without memoryLimit",
    )


def _clients_fit(rule: Rule, keys: Keys, model: GpuModel, where: str) -> Iterator[Problem]:
    if rule.mps is None or model.compute_capability is None:
        return
    error = clients_error(rule.mps.replicas, model.compute_capability)
    if error:
        remedy = f"{MAX_MPS_CLIENTS_BEFORE_VOLTA} or less is expected"
        yield problem((*keys, "mps", "replicas"), f"{error}, as {where} is", remedy)


def _one_meaning(
    cluster: Cluster, uses: list[_Use], hardware: Hardware, model: GpuModel
) -> Iterator[Problem]:
    """Refuse a resource name that stands for two things in one pool."""
    meanings: dict[str, tuple[Offer, _Use]] = {}
    for use in uses:
        profile = cluster.profiles[use.profile]
        if profile.by_claims:
            continue
        numbers = rules_by_gpu(profile, hardware, model)
        rules = {
            gpu: None if number == WHOLE else profile.rules[number]
            for gpu, number in numbers.items()
        }
        error = single_error(rules)
        if error:
            first = next(n for g, n in numbers.items() if _strategy(rules[g]) == "single")
            yield problem(
                (*profile.keys_of(use.profile, first), "mig", "strategy"),
                f"single makes all devices of a node nvidia.com/gpu, but {error}",
                "use mixed, or the same one MIG profile on all GPUs",
            )
            continue
        for number in dict.fromkeys(numbers.values()):
            rule = Rule() if number == WHOLE else profile.rules[number]
            for offer in offers(rule, model.memory_mib, model):
                known, other = meanings.setdefault(offer.resource, (offer, use))
                if known != offer:
                    keys: Keys = ("profiles", use.profile)
                    if number != WHOLE:
                        keys = profile.keys_of(use.profile, number)
                    yield problem(
                        keys,
                        f"{offer.resource} would mean {_meaning(offer)} ({use}) and "
                        f"{_meaning(known)} ({other}) in pool {use.pool}",
                        _another_name(offer, known),
                    )
                    break


def _another_name(*offers: Offer) -> str:
    """Describe how one of two offers gets a name of its own."""
    shared = [offer.sharing for offer in offers if offer.sharing.is_shared]
    if not shared:
        return "write `strategy: mixed` for the MIG devices, whose names then say their size"
    way = "mps" if all(sharing.by_mps for sharing in shared) else "timeSlicing"
    replicas = max(sharing.replicas for sharing in shared)
    return f"give one of them a {way}.resourceName, such as {VENDOR}/gpu.x{replicas}"


def _meaning(offer: Offer) -> str:
    device = "GPU" if offer.mig_profile is None else f"{offer.mig_profile} MIG device"
    sharing = offer.sharing
    if not sharing.is_shared:
        return f"a whole {device}"
    word = {"prevent": "prevented", "enforce": "enforced", "warn": "watched"}[sharing.action]
    limit = f" with {sharing.memory_mib} MiB {word}" if sharing.memory_mib else ""
    limit += {"auto": " by driver or limiter", "driver": " by the driver", "limiter": ""}[
        sharing.enforcement if sharing.is_prevented else "limiter"
    ]
    limit += {"share": ", compute shared", "cap": ", compute capped", None: ""}[sharing.compute]
    if sharing.by_mps:
        limit = f" by MPS{limit}, {sharing.threads} % of the SMs"
    many = "" if sharing.one_per_container else ", several allowed"
    return f"1/{sharing.replicas} of a {device}{limit}{many}"


def _refused_everywhere(layout: Mapping[str, int]) -> str | None:
    """Return why no model can hold a layout, None if one can, or may: not all is published."""
    if any(
        re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.+-])", model.mig_unpublished)
        for model in gpu_models().values()
        for name in layout
    ):
        return None
    geometries = [model.mig for model in gpu_models().values() if model.mig]
    having = [mig for mig in geometries if all(mig.profile(name) for name in layout)]
    if not having:
        return f"none has {' and '.join(layout)}" + (" together" if len(layout) > 1 else "")
    refusal = None
    for mig in having:
        try:
            place(mig, layout)
        except NoPlacement as no:
            refusal = refusal or str(no)
        else:
            return None
    return refusal
