"""What a scrape shows: holders, memory that is surely a pod's, time in states."""

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from divvy.agent.claims.claim_users import named_holders
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.claims.service import prepare_seconds
from divvy.agent.containers import Member, Process
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.status import GpuStatus, NodeStatus
from divvy.agent.inject.share_usage import Figures
from divvy.agent.memory.shares import ShareFigures
from divvy.agent.metrics import container_utilisation
from divvy.agent.metrics.node_metrics import metrics_page, mode
from divvy.agent.mps.service import MpsFigures
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.inventory import Device, Resource
from divvy.agent.state_clock import StateClock
from divvy.model.sharing import Sharing
from tests.agent.claim_values import claim, claim_record, held, offered_gpu

WHOLE = Resource("nvidia.com/gpu", (Device("GPU-a", "GPU-a", "GPU-a"),), "gpu")
SHARED = Resource(
    "nvidia.com/gpu.shared",
    tuple(Device(f"GPU-b::{n}", "GPU-b", "GPU-b") for n in range(2)),
    "gpu",
    Sharing(2, one_per_container=True),
)
HELD = (
    Holder("team/one", "main", "nvidia.com/gpu", "GPU-a"),
    Holder("team/two", "main", "nvidia.com/gpu.shared", "GPU-b::1"),
    Holder("team/old", "main", "nvidia.com/gpu", "GPU-gone"),
    Holder("team/kept", "main", "nvidia.com/gpu", "GPU-c"),
    Holder("team/slice", "main", "nvidia.com/mig-1g.5gb", "MIG-c"),
)


def gpu(uuid: str, minor: int, *parts: str) -> Any:
    instances = tuple(SimpleNamespace(uuid=part, profile_id=19, memory_mib=4864) for part in parts)
    return SimpleNamespace(
        uuid=uuid,
        index=minor,
        minor=minor,
        product="T4",
        memory_mib=15360,
        present=True,
        mig_mode=bool(parts),
        instances=instances,
    )


def _claimed() -> ClaimRecord:
    gpus = (offered_gpu(0), offered_gpu(1))
    first = claim("first", held(gpus[0], "-share", 3000, 30), held(gpus[1], "-share", 3000, 30))
    second = claim("second", held(gpus[0], "-share", 1000, 20))
    return claim_record(*gpus, claims=(first, second))


CLAIMED = _claimed()
FIGURES = Figures((), (0,), (0,), (0.0,), (0,), (0,))
USING = replace(FIGURES, used=(2000 << 20,))


def _prepared() -> Any:
    seconds = prepare_seconds()
    seconds.labels("node-1").observe(0.3)
    return seconds


NOWHERE = Path("/nowhere")


def scrape(
    state: str = "Ready",
    success: float | None = None,
    logs: Path = NOWHERE,
    prepared: ClaimRecord = CLAIMED,
    current: ClaimRecord = CLAIMED,
    shares: tuple[tuple[int, int], ...] = ((1, 60), (2, 50), (3, 9)),
) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the samples of a page; claims were ``prepared``, and are used as is ``current``.

    ``shares`` are the processes that compute on GPU-b, with the per cent of its time.
    """

    async def holders() -> tuple[Holder, ...]:
        return HELD

    async def users() -> tuple[ClaimRecord, tuple[Holder, ...]]:
        containers = {("default", "first"): [("default/first", "main")]}
        return current, named_holders(current, containers)

    async def readings(of: Any) -> dict[str, dict[str, float]]:
        parts = {part.uuid: {"memory_used_mib": 50.0} for part in of.instances}
        own = {"memory_used_mib": 100.0 if of.uuid == "GPU-a" else 700.0}
        return {of.uuid: own, **parts}

    async def utilisation(of: Any) -> list[dict[str, int]]:
        if of.uuid == "GPU-a":
            raise DriverProblem("does not answer")
        on_gpu = shares if of.uuid == "GPU-b" else ()
        return [{"pid": pid, "percent": percent} for pid, percent in on_gpu]

    gpus = (GpuStatus(0, "GPU-a", state, "", None, ("nvidia.com/gpu",)),)
    agent: Any = SimpleNamespace(
        plugins=SimpleNamespace(advertised=lambda: (WHOLE, SHARED)),
        memory_watch=SimpleNamespace(excesses=()),
        conformance_success=success,
        share_accounts=SimpleNamespace(
            figures={
                "c": ShareFigures(("claim:uid-first",), {"GPU-0": 3000 << 20}, FIGURES),
                "now": ShareFigures(("GPU-b::1",), {"GPU-b": 3000 << 20}, USING),
                "earlier": ShareFigures(("GPU-b::1", "GPU-b::2"), {"GPU-b": 6000 << 20}, FIGURES),
            },
            unreadable={"a": ("GPU-b::1",), "b": ("GPU-c::0",), "d": ("GPU-b::0", "GPU-b::1")},
        ),
        status=NodeStatus("abc", "pool", "split", "pool", "", "550", True, gpus, {}),
        state_seconds=lambda _now: {("GPU-a", "Changing"): 1.5},
        driver=SimpleNamespace(
            snapshot=SimpleNamespace(
                gpus=(
                    *(gpu("GPU-a", 0), gpu("GPU-b", 1), gpu("GPU-c", 2, "MIG-c")),
                    *(gpu(uuid, 3) for uuid in prepared.offered if prepared is not CLAIMED),
                )
            ),
            problem="",
            readings=readings,
            utilisation=utilisation,
        ),
        container_logs=logs,
        holders=SimpleNamespace(of_pods=holders),
        mps=SimpleNamespace(
            figures=(MpsFigures("GPU-a", False, 3, 0.25), MpsFigures("GPU-b", True, 1))
        ),
        claims=SimpleNamespace(record=prepared, users=users, prepare_seconds=_prepared()),
    )
    page = asyncio.run(metrics_page(agent, "node-1")).decode()
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_names_the_holder_of_a_withdrawn_device() -> None:
    held = scrape()["divvy_device_held"]
    assert [(labels["pod"], labels["device"], labels["mode"]) for labels, _ in held] == [
        ("one", "GPU-a", "whole"),
        ("two", "GPU-b::1", "time-slicing"),
        # What a change waits for; that of a GPU which is gone is gone, too.
        ("kept", "GPU-c", "whole"),
        ("slice", "MIG-c", "mig"),
    ]
    assert [labels["gpu"] for labels, _ in held] == ["GPU-a", "GPU-b", "GPU-c", "GPU-c"]
    assert {labels["node"] for labels, _ in held} == {"node-1"}


def test_attributes_memory_to_a_pod_only_when_alone_on_the_device() -> None:
    used = scrape()["divvy_pod_memory_used_mib"]
    assert [(labels["pod"], value) for labels, value in used] == [
        ("one", 100.0), ("kept", 700.0), ("slice", 50.0),
    ]  # fmt: skip


def test_publishes_the_last_success_after_the_first() -> None:
    name = "divvy_conformance_last_success_seconds"
    assert scrape(success=1_764_000_000.0)[name] == [({"node": "node-1"}, 1_764_000_000.0)]


def test_names_who_holds_a_share_with_an_account_of_another_format() -> None:
    (unreadable,) = scrape()["divvy_share_account_unreadable"]
    labels = {"node": "node-1", "namespace": "team", "pod": "two", "container": "main"}
    assert unreadable == (labels, 1)


def test_names_pod_and_container_of_a_claims_share() -> None:
    (limit, _) = scrape()["divvy_share_memory_limit_mib"]
    where = {"uuid": "GPU-0", "namespace": "default", "pod": "first", "container": "main"}
    assert limit == ({"node": "node-1", **where}, 3000)


def test_attributes_the_share_of_several_pods_to_the_first_by_name() -> None:
    """As the bill does: a second pod must not take the figures away."""
    first = CLAIMED.claims["uid-first"]
    users = replace(first, pods=(("first", "pod-uid-first"), ("second", "")))
    samples = scrape(current=replace(CLAIMED, claims={first.uid: users}))
    pods = [labels["pod"] for labels, _ in samples["divvy_share_memory_limit_mib"]]
    assert (pods.count("first"), pods.count("second")) == (1, 0)


def test_attributes_no_past_share_to_the_replicas_current_holder() -> None:
    samples = scrape()
    where = {"node": "node-1", "uuid": "GPU-b", "namespace": "team", "pod": "two"}
    where["container"] = "main"
    assert samples["divvy_share_memory_used_mib"][1:] == [(where, 2000)]
    assert samples["divvy_share_memory_limit_mib"][1:] == [(where, 3000)]


def test_reports_one_state_of_all_and_adds_up_their_times() -> None:
    samples = scrape("Waiting")
    on = [labels["state"] for labels, value in samples["divvy_node_state"] if value]
    assert on == ["Waiting"]
    spent = {labels["state"]: value for labels, value in samples["divvy_gpu_state_seconds_total"]}
    assert spent["Changing"] == 1.5
    assert spent["Ready"] == 0


def test_names_modes_as_the_plan_does() -> None:
    mig = Resource("nvidia.com/mig-1g.5gb", (), "mig")
    shared_mig = Resource("nvidia.com/mig-1g.5gb.shared", (), "mig", Sharing(4))
    files = Resource("rdma/hca", (), "file")
    modes = [mode(layout) for layout in (WHOLE, SHARED, mig, shared_mig, files)]
    assert modes == ["whole", "time-slicing", "mig", "mig+time-slicing", "files"]
    prevented = Sharing(4, memory_mib=1000, action="prevent")
    limited = [mode(replace(layout, sharing=prevented)) for layout in (SHARED, shared_mig)]
    assert limited == ["time-slicing+limit", "mig+time-slicing+limit"]


def test_counts_a_momentary_state_between_scrapes() -> None:
    def statuses(state: str) -> list[GpuStatus]:
        return [GpuStatus(0, "GPU-a", state, "", None, ())]

    clock = StateClock()
    clock.observe(statuses("Ready"), 10.0)
    clock.observe(statuses("Changing"), 15.0)
    clock.observe(statuses("Ready"), 15.2)
    spent = clock.seconds(20.0)
    assert spent["GPU-a", "Ready"] == 5.0 + 4.8
    assert round(spent["GPU-a", "Changing"], 6) == 0.2
    clock.observe([], 30.0)
    assert clock.seconds(99.0) == clock.seconds(30.0)


def test_publishes_what_claims_hold_of_each_gpu() -> None:
    samples = scrape()
    by_gpu = {
        name: {labels["gpu"]: value for labels, value in samples[f"divvy_claims_{name}"]}
        for name in ("held", "memory_mib", "cores")
    }
    assert by_gpu == {
        "held": {"0": 2, "1": 1},
        "memory_mib": {"0": 4000, "1": 3000},
        "cores": {"0": 50, "1": 30},
    }


def test_attributes_a_shared_claim_to_the_pods_that_use_it_now() -> None:
    """The kubelet asks for a claim once, for the first of its pods."""
    offered = offered_gpu(3, {})
    first = claim("first", held(offered, ""))
    prepared = claim_record(offered, claims=(first,))

    def pods(*names: str) -> tuple[list[str], list[str]]:
        users = replace(first, pods=tuple((name, "") for name in names))
        samples = scrape(prepared=prepared, current=claim_record(offered, claims=(users,)))
        alone, charged = (
            [labels["pod"] for labels, _ in samples[name] if labels["uuid"] == offered.uuid]
            for name in ("divvy_pod_memory_used_mib", "divvy_allocated_devices")
        )
        return alone, charged

    assert pods("second") == (["second"], ["second"])
    # Whose the memory is nobody knows.
    assert pods("first", "second") == ([], ["first"])


def test_publishes_what_claims_can_still_get() -> None:
    samples = scrape()
    free = {labels["gpu"]: value for labels, value in samples["divvy_claims_memory_free_mib"]}
    assert free == {"0": 40960 - 4000, "1": 40960 - 3000}
    assert samples["divvy_claims_of_tenant"] == [({"node": "node-1", "tenant": ""}, 2)]
    uses = [labels["use"] for labels, value in samples["divvy_claims_gpu_use"] if value]
    assert uses == ["shares", "shares"]
    assert samples["divvy_claims_prepare_seconds_count"] == [({"node": "node-1"}, 1)]


def test_publishes_health_and_starts_of_mps_daemons() -> None:
    samples = scrape()
    ready = {labels["uuid"]: value for labels, value in samples["divvy_mps_daemon_ready"]}
    assert ready == {"GPU-a": 0, "GPU-b": 1}
    starts = {labels["uuid"]: value for labels, value in samples["divvy_mps_daemon_starts"]}
    assert starts == {"GPU-a": 3, "GPU-b": 1}


def test_publishes_how_full_the_memory_of_mps_clients_is() -> None:
    used = {
        labels["uuid"]: value for labels, value in scrape()["divvy_mps_shared_memory_used_ratio"]
    }
    assert used == {"GPU-a": 0.25, "GPU-b": 0}


def test_adds_up_the_gpu_time_of_a_containers_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One process has ended, or belongs to no pod; of one GPU the driver says nothing."""
    ids = {1: "a" * 64, 2: "a" * 64, 4: "b" * 64}
    monkeypatch.setattr(
        container_utilisation,
        "find_process",
        lambda pid: (Process(pid, 1), Member("uid", ids[pid])) if pid in ids else None,
    )
    (tmp_path / f"two_team_main-{ids[1]}.log").touch()
    labels = {"node": "node-1", "gpu": "1", "uuid": "GPU-b", "namespace": "team", "pod": "two"}
    assert scrape(logs=tmp_path)["divvy_container_gpu_utilisation"] == [
        ({**labels, "container": "main"}, 100)
    ]
    assert "divvy_container_gpu_utilisation" not in scrape()


def test_shows_that_a_container_took_none_of_a_gpus_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where a process is of nobody, as an MPS daemon's, it may have computed for any of them."""
    ids = {1: "a" * 64, 2: "b" * 64}
    monkeypatch.setattr(
        container_utilisation,
        "find_process",
        lambda pid: (Process(pid, 1), Member("uid", ids[pid])) if pid in ids else None,
    )
    (tmp_path / f"two_team_main-{ids[1]}.log").touch()
    (tmp_path / f"agent_divvy-system_agent-{ids[2]}.log").touch()

    def utilisation(*shares: tuple[int, int]) -> dict[str, float]:
        samples = scrape(logs=tmp_path, shares=shares)["divvy_container_gpu_utilisation"]
        return {labels["pod"]: value for labels, value in samples if labels["uuid"] == "GPU-b"}

    assert utilisation() == {"two": 0}
    assert utilisation((1, 40)) == {"two": 40}
    assert utilisation((2, 30)) == {"agent": 30}
    assert "two" not in utilisation((3, 30), (2, 30))
