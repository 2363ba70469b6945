"""Nodes whose driver limits no memory, where profiles leave that to the driver."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.enforcement import DRIVER_LIMITS_SINCE
from divvy.model.problems import printable
from divvy.model.resource_names import VENDOR
from divvy.model.sharing import enforcement_of_gpus
from divvy.model.versions import is_older

_DRIVER = f"{VENDOR}/cuda.driver-version.full"
_MAX_NODES = 3
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
        driver = str(labels.get(_DRIVER, ""))
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
            more = f" and {len(names) - _MAX_NODES} more" if len(names) > _MAX_NODES else ""
            yield (
                f"the drivers of {', '.join(sorted(names)[:_MAX_NODES])}{more} are older than "
                f"{DRIVER_LIMITS_SINCE} and limit no memory: with `enforcement: {enforcement}` "
                f"{_FOLLOWS[enforcement]}"
            )
