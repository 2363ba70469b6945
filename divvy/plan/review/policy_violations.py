"""Finds what a cluster has that its administrator's policy does not allow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath

from divvy.model import (
    Cluster,
    GpuModel,
    Hardware,
    Offer,
    Problem,
    Profile,
    Rule,
    hardware_model,
    rule_for,
)
from divvy.model.problems import Keys, printable, problem
from divvy.model.resolution import offers
from divvy.model.sharing import Sharing, sharing_of_claims, sharing_of_replicas
from divvy.model.stack_policy import Policy, RuleName
from divvy.plan.predict.guarantees import (
    MEMORY_LEVELS,
    MIG,
    Guarantees,
    guarantees,
    level,
    share_guarantees,
)

# A promise is as strong on a device of any size.
_DEVICE_MIB = 1 << 20
_GPU_FILES = "/dev/nvidia"


@dataclass(frozen=True)
class Violation:
    """What a rule of a policy does not allow; one of ``Policy.advisory`` only warns."""

    rule: RuleName
    problem: Problem


@dataclass(frozen=True)
class _Way:
    """One way in which a rule gives out a device: of its GPUs, or of their MIG devices.

    ``containers`` is how many can have the device at once; ``apart`` says that those of two tenants
    never do.
    """

    keys: Keys
    containers: int
    sharing: Sharing
    guarantees: Guarantees
    apart: bool = False


def violations(policy: Policy, cluster: Cluster, now: datetime) -> tuple[Violation, ...]:
    """Return what is not allowed at a time (in UTC), profiles in the order of the stack file.

    All profiles count, not only those of pools: a node's label may choose any.
    """
    listed: list[Violation] = []
    for name, profile in cluster.profiles.items():
        for number, rule in enumerate(profile.rules):
            keys = ("profiles", name) if len(profile.rules) == 1 else ("profiles", name, number)
            for way in _ways(keys, rule):
                listed += _of_way(policy, way)
            listed += _of_sizes(policy, cluster, name, keys, number)
    return (*listed, *_of_files(policy, cluster), *_of_cluster(policy, cluster, now))


def _ways(keys: Keys, rule: Rule) -> Iterator[_Way]:
    if rule.claims is not None:
        if rule.claims.mig:
            yield _Way((*keys, "claims", "mig"), 1, Sharing(), MIG)
        if rule.claims.shares is not None:
            sharing, apart = sharing_of_claims(rule.claims.shares), bool(rule.claims.tenants)
            promise = share_guarantees(sharing, tenants=apart)
            most = rule.claims.shares.max
            yield _Way((*keys, "claims", "shares"), most, sharing, promise, apart)
        return
    sharing = sharing_of_replicas(rule.sharing, _DEVICE_MIB)
    offer = Offer("", "gpu" if rule.mig is None else "mig", None, sharing)
    yield _Way(keys, sharing.replicas, sharing, guarantees(offer))


def _of_way(policy: Policy, way: _Way) -> Iterator[Violation]:
    memory, faults = level(way.guarantees.memory), level(way.guarantees.faults)
    if policy.memory and MEMORY_LEVELS.index(memory) > MEMORY_LEVELS.index(policy.memory):
        yield _violation(
            "memory",
            way.keys,
            f"promises memory that is {memory}",
            f"the policy's `memory` is {policy.memory} or stronger",
        )
    if policy.faults and faults != policy.faults and way.containers > 1:
        yield _violation(
            "faults",
            way.keys,
            "lets a fault of one container end others",
            f"the policy's `faults` is {policy.faults}",
        )
    if way.containers > 1 and policy.sharing == "none":
        yield _violation("sharing", way.keys, "shares devices", "the policy's `sharing` is none")
    elif way.containers > 1 and policy.sharing == "tenants-apart" and not way.apart:
        yield _violation(
            "sharing",
            way.keys,
            "lets containers of two tenants share a device",
            "the policy's `sharing` is tenants-apart: share by `claims` with `tenants`",
        )
    most = policy.max_containers_per_device
    if most is not None and way.containers > most:
        yield _violation(
            "maxContainersPerDevice",
            way.keys,
            f"lets {way.containers} containers share a device",
            f"the policy's `maxContainersPerDevice` is {most}",
        )
    if not policy.oversubscription and way.sharing.oversubscribed:
        yield _violation(
            "oversubscription",
            way.keys,
            "has limits that add up to more memory than the device has",
            "the policy's `oversubscription` is false",
        )


def _of_sizes(
    policy: Policy, cluster: Cluster, profile: str, keys: Keys, number: int
) -> Iterator[Violation]:
    """Yield limits of a fixed size that add up to too much, or to a part of an unknown whole."""
    rule = cluster.profiles[profile].rules[number]
    limit = rule.sharing.memory_limit if rule.sharing else None
    if policy.oversubscription or limit is None or limit.limit == "auto":
        return
    followers = [
        pool.hardware
        for pool in cluster.pools.values()
        if profile in (pool.profile, *pool.overrides.values())
    ]
    takes = partial(_takes, cluster.profiles[profile], number)
    models = [hardware_model(known) for known in followers if known and takes(known)]
    if None in followers or not models:
        yield _violation(
            "oversubscription",
            keys,
            f"has limits of {limit.limit} for GPUs whose memory is not known",
            "the policy's `oversubscription` is false: write auto, or `hardware` into the pools "
            "that follow the profile",
        )
        return
    for model in models:
        for offer in offers(rule, model.memory_mib, model):
            limits_mib = (offer.sharing.memory_mib or 0) * offer.sharing.replicas
            if limits_mib > (device_mib := _device_mib(model, offer)):
                device = offer.mig_profile or model.name
                yield _violation(
                    "oversubscription",
                    keys,
                    f"has limits of {limit.limit} that add up to {limits_mib} MiB, more than the "
                    f"{device_mib} MiB of {device}",
                    "the policy's `oversubscription` is false",
                )
                return


def _device_mib(model: GpuModel, offer: Offer) -> int:
    part = model.mig.profile(offer.mig_profile) if model.mig and offer.mig_profile else None
    return part.memory_mib if part else model.memory_mib


def _takes(profile: Profile, number: int, hardware: Hardware) -> bool:
    """Return whether a rule takes GPUs of a pool; one for indices or UUIDs counts as if it did."""
    if profile.rules[number].devices.model is None:
        return True
    model = hardware_model(hardware)
    names = (model.name, *model.products)
    return any(rule_for(profile, gpu, "", names) == number for gpu in range(hardware.gpus))


def _of_files(policy: Policy, cluster: Cluster) -> Iterator[Violation]:
    """Yield device files that are the GPUs' own: who gets them has the GPUs themselves."""
    promises: Mapping[RuleName, object] = {
        "memory": policy.memory,
        "faults": policy.faults,
        "sharing": policy.sharing,
        "maxContainersPerDevice": policy.max_containers_per_device,
    }
    broken = [rule for rule, promise in promises.items() if promise]
    if not broken:
        return
    # Each of them is broken: one that refuses goes before one that warns.
    rule = min(broken, key=policy.advisory.__contains__)
    for number, device in enumerate(cluster.devices):
        for path in device.paths:
            # As the agent reads it: without `.` and `//`, which lead to the same file.
            pattern = str(PurePosixPath(path))
            plain = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
            if plain.startswith(_GPU_FILES) or (plain != pattern and _GPU_FILES.startswith(plain)):
                yield _violation(
                    rule,
                    ("devices", number),
                    f"offers {printable(path)}, which may be files of a GPU",
                    "the policy lets GPUs be shared by profiles alone",
                )


def _of_cluster(policy: Policy, cluster: Cluster, now: datetime) -> Iterator[Violation]:
    windows = policy.evictions
    if cluster.change.policy != "evict" or windows is None:
        return
    if not any(window.includes(now) for window in windows):
        times = ", ".join(window.text for window in windows)
        allowed = f"within {times} UTC alone; it is {now:%a %H:%M}" if times else "never"
        yield _violation(
            "evictions",
            ("change", "policy"),
            "is evict",
            f"the policy's `evictions` allows it {allowed}",
        )


def _violation(rule: RuleName, keys: Keys, reason: str, remedy: str) -> Violation:
    return Violation(rule, problem(keys, reason, remedy))
