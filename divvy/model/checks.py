"""Checks of a stack file beyond its structure: names, references, pools that collide."""

from collections.abc import Iterator, Mapping
from itertools import combinations

from divvy.model.claim_checks import check_claims
from divvy.model.layout_checks import check_pool_hardware, check_unused_profiles
from divvy.model.mig_names import is_profile_name
from divvy.model.platform_checks import check_image_platforms
from divvy.model.problems import Keys, Problem, nearest, problem
from divvy.model.resource_names import (
    VENDOR,
    label_key_error,
    label_value_error,
    qualified,
    resource_name_error,
)
from divvy.model.stack import Cluster, Pool
from divvy.model.versions import is_older

# Kubernetes objects are named after pools, with a prefix; their names end at 63 characters.
MAX_POOL_CHARACTERS = 40
_LABEL = "lowercase letters, digits and '-', with a letter or digit at both ends"


def check_cluster(cluster: Cluster, broken: frozenset[str] = frozenset()) -> list[Problem]:
    """Return everything that is wrong with a well-formed cluster.

    ``broken`` are names of profiles that exist but could not be read: a
    reference to one of them is no error of its own.
    """
    problems = [
        *_names(cluster),
        *_select(cluster),
        *_collisions(cluster),
        *_references(cluster, broken),
        *_dead_rules(cluster),
        *_resource_names(cluster),
        *_file_devices(cluster),
        *_driver(cluster),
        *check_image_platforms(cluster),
    ]
    problems += check_claims(cluster)
    return [*problems, *check_pool_hardware(cluster), *check_unused_profiles(cluster)]


def _is_dns_label(text: str, maximum: int = 63) -> bool:
    allowed = "abcdefghijklmnopqrstuvwxyz0123456789-"
    inner = bool(text) and all(character in allowed for character in text)
    return inner and len(text) <= maximum and text[0] != "-" and text[-1] != "-"


def _is_dns_subdomain(text: str) -> bool:
    return 0 < len(text) <= 253 and all(_is_dns_label(part) for part in text.split("."))


def _names(cluster: Cluster) -> Iterator[Problem]:
    if not _is_dns_label(cluster.namespace):
        yield problem(("namespace",), f"is {cluster.namespace!r}", f"1 to 63 {_LABEL}")
    for name in cluster.profiles:
        error = label_value_error(name) if name else "a name cannot be empty"
        if error:
            yield problem(("profiles", name), error, "nodes carry profile names as label values")
    for name in cluster.pools:
        if not _is_dns_label(name, MAX_POOL_CHARACTERS):
            yield problem(
                ("pools", name), "is not a pool name", f"1 to {MAX_POOL_CHARACTERS} {_LABEL}"
            )
    for index, name in enumerate(cluster.image_pull_secrets):
        if not _is_dns_subdomain(name):
            yield problem(
                ("imagePullSecrets", index), f"is {name!r}", "the name of a Secret is expected"
            )


def _select(cluster: Cluster) -> Iterator[Problem]:
    for name, pool in cluster.pools.items():
        yield from _labels(("pools", name, "select"), pool.select or {})
    readers = cluster.observability.network_policy or {}
    yield from _labels(("observability", "networkPolicy"), readers)


def _labels(where: Keys, labels: Mapping[str, str]) -> Iterator[Problem]:
    for key, value in labels.items():
        error = label_key_error(key)
        if error:
            yield problem((*where, key), "is not a valid label key", error)
        error = label_value_error(value)
        if error:
            yield problem((*where, key), "is not a valid label value", error)


def _collisions(cluster: Cluster) -> Iterator[Problem]:
    defaults = [name for name, pool in cluster.pools.items() if pool.select is None]
    for name in defaults[1:]:
        yield problem(
            ("pools", name),
            f"has no `select`, and neither has {defaults[0]}",
            "only one pool can be the default for GPU nodes",
        )
    selecting = [(name, pool.select) for name, pool in cluster.pools.items() if pool.select]
    for (first, here), (second, there) in combinations(selecting, 2):
        if all(there.get(key, value) == value for key, value in here.items()):
            yield problem(
                ("pools", second, "select"),
                f"can select the same node as pool {first}",
                "give both pools the same label key with different values",
            )


def _references(cluster: Cluster, broken: frozenset[str]) -> Iterator[Problem]:
    known = {*cluster.profiles, *broken}
    owner: dict[str, str] = {}
    for name, pool in cluster.pools.items():
        if pool.profile not in known:
            yield problem(
                ("pools", name, "profile"),
                f"names profile {pool.profile!r}, which does not exist",
                nearest(pool.profile, sorted(known)),
            )
        for node, profile in pool.overrides.items():
            where = ("pools", name, "overrides", node)
            if not _is_dns_subdomain(node):
                yield problem(where, "is not a node name", f"labels of {_LABEL}, joined by dots")
            if profile not in known:
                yield problem(
                    where,
                    f"names profile {profile!r}, which does not exist",
                    nearest(profile, sorted(known)),
                )
            if node in owner:
                yield problem(
                    where,
                    f"is overridden in pool {owner[node]} too",
                    "a node belongs to one pool; keep one of the two",
                )
            owner[node] = name
        yield from _override_count(name, pool)


def _override_count(name: str, pool: Pool) -> Iterator[Problem]:
    if pool.hardware is not None and len(pool.overrides) > pool.hardware.count:
        yield problem(
            ("pools", name, "overrides"),
            f"names {len(pool.overrides)} nodes, and the pool has {pool.hardware.count}",
            "raise hardware.count or remove overrides",
        )


def _dead_rules(cluster: Cluster) -> Iterator[Problem]:
    for name, profile in cluster.profiles.items():
        if not profile.rules:
            yield problem(("profiles", name), "has no rule", "write {} for whole GPUs")
        catch_all: int | None = None
        for index, rule in enumerate(profile.rules):
            if catch_all is not None:
                yield problem(
                    ("profiles", name, index),
                    f"is never reached: rule [{catch_all}] takes all GPUs",
                    "put the rule for all GPUs last",
                )
            elif rule.devices.everything:
                catch_all = index


def _resource_names(cluster: Cluster) -> Iterator[Problem]:
    for name, profile in cluster.profiles.items():
        for index, rule in enumerate(profile.rules):
            at = profile.keys_of(name, index)
            if rule.sharing is not None and rule.sharing.resource_name is not None:
                error = resource_name_error(qualified(rule.sharing.resource_name))
                if error:
                    way = "mps" if rule.mps is not None else "timeSlicing"
                    yield problem((*at, way, "resourceName"), "is not a resource name", error)
            for layout in () if rule.mig is None else rule.mig.layout:
                if not is_profile_name(layout):
                    yield problem(
                        (*at, "mig", layout),
                        "is not a MIG profile name",
                        "one looks like 1g.5gb, or 1g.5gb+me",
                    )


def _file_devices(cluster: Cluster) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, device in enumerate(cluster.devices):
        where = ("devices", index, "resource")
        error = resource_name_error(device.resource)
        if error:
            yield problem(where, "is not a resource name", error)
        elif device.resource.startswith(VENDOR + "/"):
            yield problem(where, f"is in the domain {VENDOR}", "that is where GPUs are advertised")
        if device.resource in seen:
            yield problem(
                where, f"{device.resource} is listed twice", "put all paths into one entry"
            )
        seen.add(device.resource)


def _driver(cluster: Cluster) -> Iterator[Problem]:
    driver = cluster.driver
    if driver.version and driver.min_version and is_older(driver.version, driver.min_version):
        yield problem(
            ("driver", "version"),
            f"{driver.version} is older than minVersion {driver.min_version}",
            "raise the one or lower the other",
        )
