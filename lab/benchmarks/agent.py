"""What the agent costs, and how fast it is: python -m lab.benchmarks.agent (as root).

The real agent process over a fake kubelet and a fake API, real sockets, the
simulated driver. Latencies are a client's, so they contain gRPC both ways.

With a command, the same of any other device plugin, for instance NVIDIA's:

    python -m lab.benchmarks.agent --gpus 16 -- ./nvidia-device-plugin --fail-on-init-error=false

It runs with the fake kubelet's folder at /var/lib/kubelet/device-plugins (in a mount
namespace of its own) and the simulated driver's NVML first among its libraries. Measured:
start → Register → first list, Allocate, GetPreferredAllocation of every size up to the
number of devices (8 at most where they are more than 16), memory. Nothing about changes:
each plugin learns of them in another way.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.kubelet.api import deviceplugin_pb2 as api
from divvy.agent.kubelet.api import deviceplugin_pb2_grpc as stubs
from lab.fakes.agent import agent_node, simulated_driver
from lab.fakes.kubelet import FakeKubelet, fake_kubelet

CALLS = 1_000
IDLE_SECONDS = 60.0
# Mounts the folder of the fake kubelet where every plugin looks for the real one's.
ENTER = (
    'mount -t tmpfs none /var/lib && mkdir -p "$PLUGINS" && mount --bind "$0" "$PLUGINS" '
    '&& exec "$@"'
)
SHARED, GPU, SEVENTH = "nvidia.com/gpu.shared", "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


def milliseconds(call: Callable[[], object], count: int = CALLS) -> list[float]:
    """Time a call many times, after some that do not count."""
    for _ in range(20):
        call()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return times


def row(name: str, times: Sequence[float], budget: str) -> None:
    """Print one line of the table."""
    ordered = sorted(times)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{name:52} {statistics.median(ordered):9.2f} {p99:9.2f}   {budget}", flush=True)


def calls(socket: Path, ids: Sequence[str], sizes: Sequence[int]) -> None:
    """Time the kubelet's calls on one resource."""
    kind = f"{len(ids)} devices"
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = stubs.DevicePluginStub(channel)
        first = api.ContainerAllocateRequest(devices_ids=ids[:1])
        allocate = api.AllocateRequest(container_requests=[first])
        empty = milliseconds(lambda: stub.GetDevicePluginOptions(api.Empty()))
        row("an empty call: what gRPC takes both ways", empty, "")
        row(f"Allocate, {kind}", milliseconds(lambda: stub.Allocate(allocate)), "0.5 / 2")
        slowest: tuple[float, int, list[float]] = (0.0, 0, [])
        for size in sizes:
            container_request = api.ContainerPreferredAllocationRequest(
                available_deviceIDs=ids, allocation_size=size
            )
            request = api.PreferredAllocationRequest(container_requests=[container_request])
            times = milliseconds(lambda r=request: stub.GetPreferredAllocation(r), 200)  # type: ignore[misc]
            slowest = max(slowest, (statistics.median(times), size, times))
        budget = "2" if len(ids) > 100 else "3"
        row(f"GetPreferredAllocation, {kind}, slowest size {slowest[1]}", slowest[2], budget)

        def first_list() -> None:
            stream = stub.ListAndWatch(api.Empty())
            next(stream)
            stream.cancel()

        row(f"first list, {kind}", milliseconds(first_list, 100), "3")


async def serving(gpus: int, replicas: int) -> None:
    """Measure start and calls for one shape of node."""
    profile: dict[str, Any] = {} if replicas == 1 else {"timeSlicing": {"replicas": replicas}}
    resource = GPU if replicas == 1 else SHARED
    async with agent_node(gpus, profile) as node:
        await node.offered(resource, gpus * replicas)
        start = (time.perf_counter() - node.began) * 1e3
        row(f"start to first list, {gpus} GPUs x {replicas}", [start], "")
        endpoint = node.kubelet.endpoints[resource]
        sizes = range(1, gpus + 1) if replicas == 1 else (1, 2, 8)
        await asyncio.to_thread(calls, endpoint.socket, sorted(endpoint.devices), sizes)


async def other(gpus: int, command: Sequence[str]) -> None:
    """Measure another device plugin."""
    async with simulated_driver(gpus) as folder, fake_kubelet(folder) as kubelet:
        libraries = folder / "driver/usr/lib/x86_64-linux-gnu"
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(libraries),
            "PLUGINS": "/var/lib/kubelet/device-plugins",
            "NODE_NAME": "made-up",
        }
        began = time.perf_counter()
        with (folder / "plugin.log").open("w") as log:
            process = await asyncio.create_subprocess_exec(
                *("unshare", "--mount", "sh", "-c", ENTER, str(kubelet.plugins), *command),
                env=environment,
                stdout=log,
                stderr=log,
            )
        try:
            await first_lists(kubelet, folder / "plugin.log")
            row(f"start to first list, {gpus} GPUs", [(time.perf_counter() - began) * 1e3], "")
            for resource, endpoint in sorted(kubelet.endpoints.items()):
                ids = sorted(endpoint.devices)
                print(resource)
                most = len(ids) if len(ids) <= 16 else 8
                await asyncio.to_thread(calls, endpoint.socket, ids, range(1, most + 1))
                await asyncio.to_thread(ten_thousand, endpoint.socket, ids)
            _, rss, pss, threads = memory(process.pid)[0]
            print(f"RSS {rss:5.1f} MB  PSS {pss:5.1f} MB  threads {threads}")
        finally:
            process.kill()
            await process.wait()


async def first_lists(kubelet: FakeKubelet, log: Path) -> None:
    """Wait until a plugin has registered and listed devices."""
    try:
        await kubelet.until(
            lambda: any(endpoint.devices for endpoint in kubelet.endpoints.values()), 30
        )
    except TimeoutError:
        raise SystemExit(f"nothing was listed within 30 s:\n{log.read_text()[-2000:]}") from None


async def changes() -> None:
    """Measure a change of profile until the kubelet has its list, and what the agent costs."""
    async with agent_node(8, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 32)
        await asyncio.sleep(1)
        idle = await idle_share(node.pid)
        before = memory(node.pid)
        times = []
        for number in range(100):
            replicas = 4 + (number + 1) % 2
            began = time.perf_counter()
            node.configure({"timeSlicing": {"replicas": replicas}})
            await node.offered(SHARED, 8 * replicas)
            times.append((time.perf_counter() - began) * 1e3)
        row("change of replicas to new list, 100 times", times, "1000")
        times = []
        for number in range(10):
            began = time.perf_counter()
            node.configure({"mig": {"1g.5gb": 7}} if number % 2 == 0 else {})
            resource, count = (SEVENTH, 56) if number % 2 == 0 else (GPU, 8)
            await node.offered(resource, count)
            times.append((time.perf_counter() - began) * 1e3)
        row("8 GPUs whole to 7 MIG devices each and back", times, "2000")
        node.configure({"timeSlicing": {"replicas": 4}})
        await node.offered(SHARED, 32)
        endpoint = node.kubelet.endpoints[SHARED]
        await asyncio.to_thread(ten_thousand, endpoint.socket, sorted(endpoint.devices))
        after = memory(node.pid)
        print()
        for (name, *first), (_, *last) in zip(before, after, strict=True):
            print(f"{name:12} RSS {first[0]:5.1f} MB  PSS {first[1]:5.1f} MB  threads {first[2]}")
            print(f"{'':12} RSS {last[0]:5.1f} MB  PSS {last[1]:5.1f} MB  after the above")
            print(f"{'':12} and 10,000 Allocate calls")
        print(f"idle: {idle:.2f} % of a core   (budget: 90 MB resident, 0.5 %)")


def ten_thousand(socket: Path, ids: Sequence[str]) -> None:
    """Allocate ten thousand times."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = stubs.DevicePluginStub(channel)
        first = api.ContainerAllocateRequest(devices_ids=ids[:1])
        for _ in range(10_000):
            stub.Allocate(api.AllocateRequest(container_requests=[first]))


def family(pid: int) -> list[tuple[str, int]]:
    """Return the agent's processes: itself and its discovery process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [("agent", pid), *(("discovery", int(child)) for child in children)]


def memory(pid: int) -> list[tuple[str, float, float, int]]:
    """Return name, RSS, PSS (MB) and threads of each process."""
    rows = []
    for name, process in family(pid):
        fields = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        )
        threads = len(list(Path(f"/proc/{process}/task").iterdir()))
        rss, pss = (int(fields[field].split()[0]) * 1024 / 1e6 for field in ("Rss", "Pss"))
        rows.append((name, rss, pss, threads))
    return rows


async def idle_share(pid: int) -> float:
    """Return the share of a core, in per cent, that the agent uses with nothing to do."""
    began, since = processor_seconds(pid), time.perf_counter()
    await asyncio.sleep(IDLE_SECONDS)
    return (processor_seconds(pid) - began) / (time.perf_counter() - since) * 100


def processor_seconds(pid: int) -> float:
    """Return the processor time used so far, as the scheduler counts it.

    In nanoseconds: what wakes up for less than a clock tick is often not in the ticks at all.
    """
    nanoseconds = 0
    for _, process in family(pid):
        for task in Path(f"/proc/{process}/task").iterdir():
            nanoseconds += int((task / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


async def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=8, help="GPUs for another plugin")
    parser.add_argument("command", nargs="*", help="another device plugin, after --")
    options = parser.parse_args()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    print(f"{'milliseconds':52} {'p50':>9} {'p99':>9}   budget")
    if options.command:
        await other(options.gpus, options.command)
        return
    for gpus, replicas in ((8, 1), (16, 1), (8, 10), (8, 100)):
        await serving(gpus, replicas)
    await changes()


if __name__ == "__main__":
    asyncio.run(main())
