"""Verify against a stack file that differs from what is deployed."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.conformance.faults.fault import Options
from tests.conformance.scene import Scene


def with_file(change: Callable[[dict[str, Any]], None]) -> Any:
    """Verify against a stack file that differs from what is deployed."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        cluster = copy.deepcopy(scene.deployed.cluster)
        change(cluster)
        yield {"cluster": cluster}

    return inflict


def other_gpus(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["model"] = "H200-141GB"


def other_driver(cluster: dict[str, Any]) -> None:
    cluster["driver"]["version"] = "570.133.20"


def more_nodes(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["count"] = 2


def more_gpus(cluster: dict[str, Any]) -> None:
    cluster["pools"]["training"]["hardware"]["gpus"] = 3


def fewer_shares(cluster: dict[str, Any]) -> None:
    cluster["profiles"]["slice-4"] = {"timeSlicing": {"replicas": 3}}


@contextmanager
def several_shares(scene: Scene) -> Iterator[Options]:
    before = copy.deepcopy(scene.deployed.cluster)
    sharing = scene.deployed.cluster["profiles"]["slice-4"]["timeSlicing"]
    sharing["failRequestsGreaterThanOne"] = False
    scene.deployed.up()
    try:
        yield {"cluster": before}
    finally:
        scene.deployed.cluster = before
        scene.deployed.up()
