"""Pods that look into nodes where no agent of Divvy's runs."""

from collections.abc import Callable
from typing import Any

from conformance.cluster.inspectors import Inspectors
from divvy.model import parse_cluster
from tests.conformance.promised_nodes import CLUSTER


class Pods:
    """A namespace whose pods run until they are ended."""

    name = "run-privileged"

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}

    def start(self, node: str, _command: Any, **_: Any) -> str:
        name = f"{node}-{len(self.phases)}"
        self.phases[name] = "Running"
        return name

    def phase(self, name: str) -> str:
        return self.phases[name]

    def until(self, met: Callable[[], bool], _seconds: float) -> bool:
        return met()


def test_looks_again_where_the_pod_has_come_to_its_end() -> None:
    """A run of half an hour and more outlives each of its pods."""
    image = {"plugin": {"image": {"reference": f"r/agent@sha256:{'0' * 64}"}}}
    pods = Pods()
    inspectors = Inspectors(lambda: pods, parse_cluster({**CLUSTER, **image}))  # type: ignore[arg-type, return-value]
    assert inspectors.on("n1") == inspectors.on("n1") == ("run-privileged", "n1-0")
    assert inspectors.on("n2") == ("run-privileged", "n2-1")
    pods.phases["n1-0"] = "Failed"
    assert inspectors.on("n1") == ("run-privileged", "n1-2")
