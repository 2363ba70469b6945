"""One look at a node is of one instant, although the kubelet takes its time to answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.node import NodeView
from divvy.agent.observe import Observer
from divvy.model import DesiredGpu, DesiredNode
from tests.agent.devices import gpu, snapshot


def test_treats_a_plan_as_running_for_a_snapshot_from_before_its_end() -> None:
    """What it has made is not in that snapshot: the plan would be executed once more."""
    reconfigurer = SimpleNamespace(applying=frozenset({"GPU-0"}), failures={})

    async def allocatable() -> frozenset[str]:
        reconfigurer.applying = frozenset()
        return frozenset()

    async def holders() -> tuple[()]:
        return ()

    observer = Observer(
        cast("Any", SimpleNamespace(in_touch=True)),
        cast("Any", None),
        cast("Any", SimpleNamespace(current=True)),
        cast("Any", SimpleNamespace(allocatable=allocatable, holders=holders)),
        cast("Any", reconfigurer),
    )
    look = observer.observe(DesiredState(), snapshot(gpu(0)), NodeView("", {}, {}, ""))
    assert asyncio.run(look).applying == {"GPU-0"}


def test_asks_no_gpu_for_processes_while_its_plan_is_executed() -> None:
    """The question would stand in line with the calls that carry out the plan."""
    uuids: list[str] = []

    async def processes(of_gpu: Gpu) -> list[object]:
        uuids.append(of_gpu.uuid)
        return []

    async def nothing() -> tuple[()]:
        return ()

    observer = Observer(
        cast("Any", SimpleNamespace(in_touch=True)),
        cast("Any", SimpleNamespace(processes=processes)),
        cast("Any", SimpleNamespace(current=True)),
        cast("Any", SimpleNamespace(allocatable=nothing, holders=nothing)),
        cast("Any", SimpleNamespace(applying=frozenset({"GPU-0"}), failures={})),
    )
    layouts = tuple(DesiredGpu(f"GPU-{n}", n, n, {"1g.5gb": 7}, ()) for n in range(2))
    node = DesiredNode(pool="all", profile="p", source="pool", gpus=layouts, problems=())
    look = observer.observe(
        DesiredState(node=node), snapshot(gpu(0), gpu(1)), NodeView("", {}, {}, "")
    )
    assert list(asyncio.run(look).busy) == uuids == ["GPU-1"]
