"""Nodes whose driver keeps a profile's limits by weaker means than others do."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.enforcement import DRIVER_LIMITS_SINCE, MPS_V3_SINCE
from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.model.resource_names import VENDOR
from divvy.model.sharing import enforcement_of_gpus
from divvy.model.versions import is_older

DRIVER_LABEL = f"{VENDOR}/cuda.driver-version.full"
_FOLLOWS: Mapping[Literal["auto", "driver"], str] = {
    "auto": "the limiter keeps memory limits there",
    "driver": "they offer no replica",
}


def rung_warnings(cluster: Cluster, nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what `enforcement` comes to on nodes of the API whose driver is too old for its own.

    What the agents' labels say of drivers counts; of a node without one nothing is known.
    """
    older: dict[Literal["auto", "driver"], list[str]] = {"auto": [], "driver": []}
    for node in nodes:
        meta = node["metadata"]
        labels = meta.get("labels") or {}
        driver = str(labels.get(DRIVER_LABEL, ""))
        if not driver or not is_older(driver, DRIVER_LIMITS_SINCE):
            continue
        profile = select_profile(cluster, NodeFacts(meta["name"], labels)).profile
        rules = cluster.profiles[profile].rules if profile in cluster.profiles else ()
        enforcements = set(map(enforcement_of_gpus, rules))
        for enforcement, names in older.items():
            if enforcement in enforcements:
                names.append(printable(f"{meta['name']} ({driver})"))
    for enforcement, names in older.items():
        if names:
            yield (
                f"the drivers of {some(sorted(names))} are older than "
                f"{DRIVER_LIMITS_SINCE} and limit no memory: with `enforcement: {enforcement}` "
                f"{_FOLLOWS[enforcement]}"
            )


def namespace_warnings(cluster: Cluster, nodes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where nodes of one profile differ in the version of MPS: the older is the weaker.

    A container that may have several shares is held to its SMs by its variables alone there.
    """
    older: dict[str, list[str]] = {}
    newer: set[str] = set()
    for node in nodes:
        meta = node["metadata"]
        labels = meta.get("labels") or {}
        driver = str(labels.get(DRIVER_LABEL, ""))
        profile = select_profile(cluster, NodeFacts(meta["name"], labels)).profile
        if not driver or profile not in cluster.profiles:
            continue
        shares = [rule.mps for rule in cluster.profiles[profile].rules if rule.mps is not None]
        if all(mps.fail_requests_greater_than_one for mps in shares):
            continue
        if is_older(driver, MPS_V3_SINCE):
            older.setdefault(profile, []).append(printable(f"{meta['name']} ({driver})"))
        else:
            newer.add(profile)
    for profile, names in sorted(older.items()):
        if profile in newer:
            yield (
                f"the drivers of {some(sorted(names))} are older than {MPS_V3_SINCE}: profile "
                f"{profile} is version 2 of MPS there, and a container can drop its limit of SMs, "
                "which it cannot on the others"
            )
