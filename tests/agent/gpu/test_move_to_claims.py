"""A node's move from the device plugin to claims has one deadline, whatever becomes of its GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from divvy.agent.decision_record import DecisionRecord
from divvy.agent.gpu.change_policy import Policy
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.holders import Holder, Remembered
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.owner import ClaimsView, KubeletView, next_offered
from divvy.agent.gpu.reconciliation import Observation
from divvy.agent.gpu.status import gpu_states
from divvy.agent.gpu.transition import Decision, Failure
from divvy.agent.plugin.inventory import inventory
from divvy.model import DesiredGpu, DesiredNode, Offer
from divvy.model.claims import Claims
from tests.agent.devices import gpu, instance, snapshot
from tests.agent.node_machine import Disk

WHOLE = Offer("nvidia.com/gpu", "gpu", None)
POD = Holder("team/pod", "main", "nvidia.com/gpu", "GPU-0", "uid")
OTHER = Holder("team/other", "main", "nvidia.com/gpu", "GPU-1", "uid-2")
LOST = replace(gpu(0), lost=True)
HUNG = replace(gpu(0), fault="the GPU does not answer")
WAIT = Policy("wait", 60.0)


def layouts(count: int, claims: Claims | None) -> tuple[DesiredGpu, ...]:
    offers = () if claims else (WHOLE,)
    return tuple(DesiredGpu(f"GPU-{n}", n, n, None, offers, claims) for n in range(count))


@dataclass
class Node:
    """A node that moves, whose kubelet takes each list at once; ``look`` is one reconciliation."""

    gpus: dict[str, Gpu] = field(default_factory=lambda: {f"GPU-{n}": gpu(n) for n in range(2)})
    held: dict[str, tuple[Holder, ...]] = field(default_factory=dict)
    policy: Policy = WAIT
    claims: Claims | None = Claims()
    view: ClaimsView = ClaimsView()
    disk: Disk = field(default_factory=Disk)
    applying: frozenset[str] = frozenset()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    daemons: frozenset[str] = frozenset()
    unanswered: str = ""

    def __post_init__(self) -> None:
        applied = {layout.uuid: layout for layout in layouts(len(self.gpus), None)}
        self.disk.saved = Checkpoint(applied=applied)
        self.restart()

    def restart(self) -> None:
        """Begin with what is on the disk alone."""
        self.record = DecisionRecord(self.disk, "boot", {})  # type: ignore[arg-type]

    def look(self, now: float) -> dict[str, Decision]:
        """Observe and decide twice: the kubelet takes the list in between."""
        for _ in range(2):
            self._look(now)
        return self.record.decisions

    def _look(self, now: float) -> None:
        node = DesiredNode("all", "p", "pool", layouts(len(self.gpus), self.claims), ())
        desired = DesiredState(node=node, policy=self.policy)
        kubelet: KubeletView | str = KubeletView(self.held, self.allocatable, fence=True)
        observed = Observation(
            snapshot(*self.gpus.values()),
            self.unanswered or kubelet,
            api_in_touch=True,
            applying=self.applying,
            failures=self.failures,
            claims=self.view,
            daemons=self.daemons,
        )
        view = NodeView("uid", {}, {})
        self.record.decide(desired, observed, view, Health(), Remembered(), now)
        offered = next_offered(self.record.owners, self.view.record)
        self.view = replace(self.view, record=replace(self.view.record, offered=offered))

    @property
    def allocatable(self) -> frozenset[str]:
        """Return the devices that are listed and healthy."""
        advertised = [decision.advertise for decision in self.record.decisions.values()]
        unhealthy = {observed.uuid: "it" for observed in self.gpus.values() if not observed.present}
        resources = inventory(advertised, snapshot(*self.gpus.values()), unhealthy)
        return frozenset(
            d.id for resource in resources for d in resource.devices if not d.unhealthy
        )

    @property
    def offered(self) -> list[str]:
        """Return the GPUs that claims are offered."""
        return sorted(self.view.record.offered)

    def status(self, uuid: str) -> tuple[str, str]:
        """Return state and reason of a GPU as the node's status has them."""
        seen, decided = snapshot(*self.gpus.values()), self.record.decisions
        (status,) = (s for s in gpu_states(seen, decided, Health(), {}) if s.uuid == uuid)
        return str(status.state), status.reason


@pytest.mark.parametrize("broken", [LOST, HUNG])
def test_moves_at_the_deadline_without_a_faulty_gpu_whose_pod_does_not_end(broken: Gpu) -> None:
    node = Node({"GPU-0": broken, "GPU-1": gpu(1)}, {"GPU-0": (POD,)})
    for now in (0.0, 30.0, 59.0):
        assert node.look(now)["GPU-1"].reason == "held by team/pod"
        assert (node.offered, node.allocatable) == ([], frozenset())
    node.look(60.0)
    assert node.offered == ["GPU-1"]
    assert node.status("GPU-0") == (
        "Degraded",
        f"{'the GPU is lost' if broken.lost else broken.fault}; held by team/pod; "
        "its node moves to claims without it",
    )


def test_moves_without_a_gpu_that_is_lost_on_the_way() -> None:
    for since in (0.0, 1.0):
        node = Node(held={"GPU-0": (POD,)})
        node.look(0.0)
        node.gpus["GPU-0"] = LOST
        node.look(since)
        node.held = {}
        node.look(2.0)
        assert node.offered == ["GPU-1"]


def test_reports_that_an_unowned_gpu_does_not_answer() -> None:
    node = Node({"GPU-0": HUNG, "GPU-1": gpu(1)})
    for _ in range(2):
        assert node.look(1.0)["GPU-0"].ownership.line == "nobody (it does not answer)"


def test_starts_beside_a_lost_gpu_without_waiting_for_it() -> None:
    node = Node({"GPU-0": LOST, "GPU-1": gpu(1)})
    node.unanswered = "the kubelet does not answer"
    node.look(0.0)
    node.unanswered = ""
    node.look(1.0)
    assert node.offered == ["GPU-1"]


def test_withdraws_idle_gpus_no_longer_because_of_a_fault() -> None:
    """One deadline for the node: it began when the first GPU did."""
    node = Node({"GPU-0": HUNG, "GPU-1": gpu(1)}, {"GPU-0": (POD,)})
    node.look(0.0)
    node.gpus["GPU-0"] = gpu(0)
    assert node.look(50.0)["GPU-1"].transition is not None
    decided = node.look(60.0)
    assert {decision.state for decision in decided.values()} == {"Blocked"}
    assert node.allocatable == {"GPU-0", "GPU-1"}


def test_keeps_a_node_waiting_for_pods_through_a_fault_of_seconds() -> None:
    node = Node(held={"GPU-0": (POD,)})
    node.look(0.0)
    assert node.look(60.0)["GPU-1"].state == "Blocked"
    node.gpus["GPU-0"] = HUNG
    node.look(1000.0)
    assert (node.offered, "GPU-1" in node.allocatable) == ([], True)
    node.look(1059.0)
    assert (node.offered, "GPU-1" in node.allocatable) == ([], True)
    node.look(1060.0)
    assert node.offered == ["GPU-1"]


def test_withholds_a_faulty_gpu_beside_claims() -> None:
    """The scheduler would take the node's resource for the device plugin's."""
    node = Node({"GPU-0": HUNG, "GPU-1": gpu(1)}, {"GPU-0": (POD,)})
    node.look(0.0)
    node.look(60.0)
    node.gpus["GPU-0"] = gpu(0)
    for now in (61.0, 121.0, 500.0):
        assert node.look(now)["GPU-0"].state == "Waiting"
        assert (node.allocatable, node.offered) == (frozenset(), ["GPU-1"])
    node.restart()
    node.unanswered = "the kubelet does not answer"
    node.look(501.0)
    assert node.allocatable == frozenset()
    node.unanswered, node.held = "", {}
    node.look(502.0)
    assert node.offered == ["GPU-0", "GPU-1"]
    assert node.status("GPU-0") == ("Ready", "")


def test_waits_for_the_pod_of_a_healthy_gpu_beside_a_faulty_one() -> None:
    node = Node({"GPU-0": LOST, "GPU-1": gpu(1)}, {"GPU-0": (POD,), "GPU-1": (OTHER,)})
    node.look(0.0)
    assert node.look(60.0)["GPU-1"].state == "Blocked"
    assert node.offered == []
    node.held = {"GPU-0": (POD,)}
    node.look(61.0)
    assert node.offered == ["GPU-1"]


def test_moves_at_the_deadline_without_a_gpu_that_the_driver_refuses_to_change() -> None:
    mig = gpu(0, mig=True, instances=(instance(1, 14, 2, 2),))
    node = Node({"GPU-0": mig, "GPU-1": gpu(1)})
    plan = MigPlan("GPU-0", destroy=mig.instances, mode=False)
    for now in range(0, 60, 5):
        node.look(float(now))
        # What fails, is tried again, and fails.
        node.applying = frozenset({"GPU-0"} if now % 10 else ())
        node.failures = {"GPU-0": Failure(plan, "in use by another client", float(now))}
    assert node.offered == []
    node.look(70.0)
    assert node.offered == ["GPU-1"]
    state, reason = node.status("GPU-0")
    assert (state, reason) == (
        "Failed",
        "in use by another client; its node moves to claims without it",
    )


def test_moves_at_the_deadline_without_a_gpu_whose_mps_daemon_does_not_end() -> None:
    node = Node(daemons=frozenset({"GPU-0"}))
    node.look(0.0)
    node.look(59.0)
    assert node.offered == []
    node.look(60.0)
    assert node.offered == ["GPU-1"]


def test_moves_only_what_the_kubelet_has_withdrawn() -> None:
    node = Node({"GPU-0": HUNG, "GPU-1": gpu(1)}, {"GPU-0": (POD,)}, policy=Policy("wait", 0.0))
    node.unanswered = "the kubelet does not answer"
    node.look(0.0)
    node.look(100.0)
    assert node.offered == []


def test_moves_a_committed_node_without_a_gpu_taken_meanwhile() -> None:
    """It has nothing to go back to: an agent that was killed may have saved that much."""
    node = Node()
    node.disk.saved = Checkpoint(
        applied={"GPU-0": layouts(2, None)[0], "GPU-1": layouts(2, Claims())[1]}
    )
    node.restart()
    node.held = {"GPU-0": (POD,)}
    for now in (0.0, 59.0):
        assert node.look(now)["GPU-0"].state == "Waiting"
        assert (node.offered, node.allocatable) == ([], frozenset())
    node.look(60.0)
    assert node.offered == ["GPU-1"]


def test_serves_idle_gpus_after_the_deadline_without_its_state() -> None:
    """The layout before is unknown: it cannot be advertised again."""
    node = Node(held={"GPU-0": (POD,)})
    node.disk.saved = Checkpoint()
    node.restart()
    node.look(0.0)
    node.look(59.0)
    assert node.offered == []
    node.look(60.0)
    assert node.offered == ["GPU-1"]
    assert node.status("GPU-0") == ("Waiting", "its node moves to claims without it")
    node.held = {}
    node.look(61.0)
    assert node.offered == ["GPU-0", "GPU-1"]


def test_commits_no_node_for_a_gpu_added_on_the_way() -> None:
    node = Node(held={"GPU-0": (POD,)})
    node.look(0.0)
    node.gpus["GPU-2"] = gpu(2)
    node.look(1.0)
    node.look(60.0)
    assert node.offered == []
    assert node.allocatable >= {"GPU-0", "GPU-1"}


def test_restores_everything_when_a_move_is_given_up() -> None:
    node = Node({"GPU-0": HUNG, "GPU-1": gpu(1)}, {"GPU-0": (POD,)})
    node.look(0.0)
    node.claims = None
    node.look(30.0)
    assert node.allocatable == {"GPU-1"}
    node.gpus["GPU-0"] = gpu(0)
    node.look(31.0)
    assert node.allocatable == {"GPU-0", "GPU-1"}
    node.gpus["GPU-0"] = HUNG
    node.claims = Claims()
    node.look(100.0)
    node.look(159.0)
    assert node.offered == []
    node.look(160.0)
    assert node.offered == ["GPU-1"]


def test_withholds_a_hanging_gpu_of_claims_after_losing_its_state() -> None:
    """Once it answers, the device plugin would give it to a pod beside who has a claim to it."""
    node = Node()
    node.look(0.0)
    assert node.offered == ["GPU-0", "GPU-1"]
    node.disk.saved = Checkpoint()
    node.restart()
    node.gpus["GPU-0"], node.claims = HUNG, None
    node.look(1.0)
    assert node.offered == ["GPU-0", "GPU-1"]
    node.gpus["GPU-0"] = gpu(0)
    assert node.allocatable == frozenset()
