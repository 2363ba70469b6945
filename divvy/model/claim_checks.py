"""Checks of the claims in a stack file: names, MIG profiles, sizes that no GPU has."""

from collections.abc import Iterator

from divvy.model.api_names import FRACTION_BEFORE
from divvy.model.claim_devices import LEAST_STEPS
from divvy.model.claims import Claims
from divvy.model.fractions import CONTAINER, CORES, DEVICES, KAI_FRACTION, MEMORY, TIME
from divvy.model.gpu_models import GpuModel, UnknownGpuModel
from divvy.model.hardware_model import hardware_model
from divvy.model.mig_names import is_profile_name
from divvy.model.problems import Keys, Problem, problem
from divvy.model.profile import Profile
from divvy.model.resolution import WHOLE, rules_by_gpu
from divvy.model.resource_names import (
    gpu_resource,
    label_key_error,
    mig_resource,
    resource_name_error,
)
from divvy.model.stack import Cluster


def check_claims(cluster: Cluster) -> list[Problem]:
    """Return what is wrong with the claims of profiles and with the names that pods ask by."""
    problems = [*_names(cluster)]
    for name, profile in cluster.profiles.items():
        for index, rule in enumerate(profile.rules):
            if rule.claims is not None:
                problems += _alone(rule.claims, profile.keys_of(name, index))
            elif profile.by_claims and (rule.mig is not None or rule.sharing is not None):
                problems.append(_mixed(name, profile, index))
    return [*problems, *_on_hardware(cluster)]


def _names(cluster: Cluster) -> Iterator[Problem]:
    seen = {gpu_resource(shared=True): "the shares without a size"}
    for claims in cluster.claims:
        for profile in filter(is_profile_name, claims.mig):
            seen[mig_resource(profile)] = f"MIG devices of {profile}"
    of_rules = _names_of_rules(cluster) if cluster.claims else {}
    for key, name in cluster.names.listed():
        error = resource_name_error(name)
        if error:
            yield problem(("names", key), "is not a resource name", error)
        elif used := seen.get(name) or (of_rules.get(name) if key != "gpu" else None):
            # Amounts of a GPU, which the scheduler would count as devices.
            yield problem(
                ("names", key),
                f"{name} is also used for {used}",
                "every resource needs a name of its own",
            )
        seen.setdefault(name, f"`names.{key}`")
    yield from _fraction(cluster)


def _fraction(cluster: Cluster) -> Iterator[Problem]:
    name, place = cluster.names.fraction, ("names", "fraction")
    if name is None:
        return
    if error := label_key_error(name):
        yield problem(place, "is not the name of an annotation", error)
    elif name in (MEMORY, DEVICES, CONTAINER, TIME, CORES, FRACTION_BEFORE):
        yield problem(
            place, f"{name} has a meaning of its own", f"name KAI's {KAI_FRACTION}, or your own"
        )


def _names_of_rules(cluster: Cluster) -> dict[str, str]:
    return {
        rule.time_slicing.resource_name: f"the replicas of profile {name}"
        for name, profile in cluster.profiles.items()
        for rule in profile.rules
        if rule.time_slicing is not None and rule.time_slicing.resource_name is not None
    }


def _alone(claims: Claims, keys: Keys) -> Iterator[Problem]:
    for name in claims.mig:
        if not is_profile_name(name):
            yield problem(
                (*keys, "claims", "mig"),
                f"{name!r} is not a MIG profile name",
                "one looks like 1g.5gb, or 1g.5gb+me",
            )
    if claims.tenants and claims.shares is None:
        yield problem(
            (*keys, "claims", "tenants"),
            "keeps shares of tenants apart, and there are no shares",
            "add `shares: {}`, or leave `tenants` out: whole GPUs and MIG devices are apart",
        )
    if claims.shares is not None and claims.shares.default_mib is not None:
        step, default = claims.shares.memory.step_mib, claims.shares.default_mib
        if default % step:
            yield problem(
                (*keys, "claims", "shares", "default"),
                f"is {default} MiB, not a multiple of the step of {step} MiB",
                f"{default // step * step or step}Mi or {-(-default // step) * step}Mi",
            )


def _mixed(name: str, profile: Profile, index: int) -> Problem:
    return problem(
        profile.keys_of(name, index),
        "uses the device plugin, but another rule has `claims`",
        "a node is served by one of them: write `claims` in every rule, or in none",
    )


def _on_hardware(cluster: Cluster) -> Iterator[Problem]:
    for pool_name, pool in cluster.pools.items():
        if pool.hardware is None:
            continue
        try:
            model = hardware_model(pool.hardware)
        except UnknownGpuModel:
            continue
        for name in dict.fromkeys((pool.profile, *pool.overrides.values())):
            profile = cluster.profiles.get(name)
            if profile is None or not profile.by_claims:
                continue
            where = f"{model.name} (pool {pool_name})"
            for index in sorted({*rules_by_gpu(profile, pool.hardware, model).values()} - {WHOLE}):
                claims = profile.rules[index].claims
                if claims is not None:
                    yield from _fits(claims, profile.keys_of(name, index), model, where)


def _fits(claims: Claims, keys: Keys, model: GpuModel, where: str) -> Iterator[Problem]:
    for name in claims.mig:
        if not is_profile_name(name):
            continue
        if model.mig is None:
            yield problem(
                (*keys, "claims", "mig"),
                f"{where} has no MIG",
                "leave `mig` out for it, or write a rule of its own for other models",
            )
            break
        if model.mig.profile(name) is None:
            has = ", ".join(profile.name for profile in model.mig.profiles)
            yield problem(
                (*keys, "claims", "mig"), f"{where} has no MIG profile {name}", f"it has {has}"
            )
    shares = claims.shares
    if shares is None:
        return
    step, memory = shares.memory.step_mib, shares.memory.of_gpu(model.memory_mib)
    if memory < LEAST_STEPS * step:
        yield problem(
            (*keys, "claims", "shares", "memory", "step"),
            f"is {step} MiB, but Kubernetes requires a GPU to hold at least two steps: {where} has "
            f"{memory} MiB for shares",
            f"{memory // LEAST_STEPS}Mi at most",
        )
    default = shares.default_mib or 0
    if default > model.memory_mib:
        yield problem(
            (*keys, "claims", "shares", "default"),
            f"is {default} MiB, more than the {model.memory_mib} MiB of {where}",
            f"{model.memory_mib}Mi at most",
        )
