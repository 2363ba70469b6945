"""Restarts of a node's services, and pods that lose their devices to them."""

import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.cluster.pods import Outcome
from conformance.disruption.node_scripts import CANNOT, FUNCTIONS, RESTART_KUBELET
from conformance.disruption.restarts import reload_systemd, restart_all
from conformance.skips import NotApplicable
from tests.conformance.promised_nodes import CLUSTER, live, promised


class StoppedWorkload:
    """Pods that stopped computing."""

    disturbed = ("pod x is Failed",)

    def undisturbed(self) -> str:
        return "0 of 1 pods compute on"


class Privileged:
    """A namespace whose pods do what they are asked, or cannot."""

    def __init__(self, code: int, log: str) -> None:
        self.ended = Outcome("Succeeded" if code == 0 else "Failed", code, log, "")

    def run(self, *_: Any) -> Outcome:
        return self.ended


def test_notices_pods_that_lose_their_device_to_a_reload_of_systemd() -> None:
    (node,) = promised(CLUSTER, live("n1"))
    seen = reload_systemd(StoppedWorkload(), node, Privileged(0, "done"))  # type: ignore[arg-type]
    assert seen.words == ["systemd back", "0 of 1 pods compute on"]
    with pytest.raises(NotApplicable, match="the node has no systemd"):
        reload_systemd(
            StoppedWorkload(),  # type: ignore[arg-type]
            node,
            Privileged(3, "the node has no systemd"),  # type: ignore[arg-type]
        )


def test_leaves_no_node_without_the_agent_where_the_runtime_cannot_be_restarted() -> None:
    """The next check would ask for devices that nobody serves."""
    (node,) = promised(CLUSTER, live("n1"))
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    agents: list[Any] = [
        {"metadata": {"name": "a", "namespace": "n", "uid": "1"}},
        None,
        {"metadata": {"uid": "2"}, "status": ready},
    ]
    target: Any = SimpleNamespace(
        agent=lambda _: agents.pop(0) if agents[1:] else agents[0],
        api=SimpleNamespace(delete=lambda *_, **__: None),
        heartbeat=lambda _: "",
        advertised=lambda _: dict(node.plan.per_node),
    )
    pods = SimpleNamespace(until=lambda met, _: any(met() for _ in range(5)))
    workload: Any = SimpleNamespace(pods=pods)
    privileged: Any = Privileged(CANNOT, "containerd is not a systemd service that runs")
    with pytest.raises(NotApplicable, match="containerd is not a systemd service"):
        restart_all(target, workload, node, privileged)
    assert len(agents) == 1


SYSTEMD = """
has_systemd() { true; }
find_process() { :; }
host() { echo "$*"; [ "$2" != is-active ] || [ "$4" = "$ACTIVE.service" ]; }
"""


@pytest.mark.parametrize(
    ("active", "code", "says"),
    [
        ("kubelet", 0, "systemctl restart kubelet.service"),
        ("k3s-agent", 0, "systemctl restart k3s-agent.service"),
        ("docker", CANNOT, "kubelet is not a systemd service that runs"),
    ],
)
def test_restarts_the_kubelet_under_any_service(active: str, code: int, says: str) -> None:
    script = RESTART_KUBELET.replace(FUNCTIONS, FUNCTIONS + SYSTEMD)
    # is-active prints nothing on a real host.
    script = script.replace('echo "$*";', '[ "$2" = is-active ] || echo "$*";')
    done = subprocess.run(
        ["sh", "-c", script], env={**os.environ, "ACTIVE": active}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, says in done.stdout) == (code, True), done.stdout + done.stderr
