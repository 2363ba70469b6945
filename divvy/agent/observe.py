"""Look at everything that a decision rests on."""

from __future__ import annotations

from collections.abc import Callable

from divvy.agent.api_server.client import ApiServer
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Held, by_uuid
from divvy.agent.gpu.node import NodeView
from divvy.agent.gpu.owner import ClaimsView, KubeletView
from divvy.agent.gpu.reconciliation import Observation, differing
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.device_holders import DeviceHolders, HoldersUnknown
from divvy.agent.plugin.registration import DevicePlugins
from divvy.agent.reconfigure import Reconfigurer


class Observer:
    """Makes one Observation of a node after the other.

    ``daemons`` returns the GPUs with an MPS daemon, ``servers`` the PIDs of a GPU's MPS servers.
    """

    def __init__(
        self,
        api: ApiServer,
        driver: Driver,
        plugins: DevicePlugins,
        holders: DeviceHolders,
        reconfigurer: Reconfigurer,
        claims: Callable[[], ClaimsView] = ClaimsView,
        daemons: Callable[[], frozenset[str]] = frozenset,
        servers: Callable[[str], frozenset[int]] = lambda _: frozenset(),
    ) -> None:
        self._api = api
        self._driver = driver
        self._plugins = plugins
        self._holders = holders
        self._reconfigurer = reconfigurer
        self._claims = claims
        self._daemons = daemons
        self._servers = servers

    async def observe(
        self, desired: DesiredState, snapshot: Snapshot, node: NodeView
    ) -> Observation:
        """Return what the kubelet, the API server and the driver show now."""
        # Now, as the snapshot: a plan that ends meanwhile has made another one of it.
        applying = self._reconfigurer.applying
        kubelet = await self._kubelet()
        held: Held = {} if isinstance(kubelet, str) else kubelet.held
        busy = {}
        for gpu in differing(desired, snapshot, self._claims()):
            # What is being executed was decided; the driver is at work on that GPU.
            if gpu.uuid not in applying:
                busy[gpu.uuid] = await self._busy(gpu, held)
        return Observation(
            snapshot=snapshot,
            kubelet=kubelet,
            api_in_touch=self._api.in_touch,
            labels=node.labels,
            busy=busy,
            applying=applying,
            failures=self._reconfigurer.failures,
            # Last: a claim may have been prepared while the others were asked.
            claims=self._claims(),
            daemons=self._daemons(),
        )

    async def _kubelet(self) -> KubeletView | str:
        # In this order: what is allocated after the fence is down was refused by us.
        fence = self._plugins.current
        try:
            allocatable = await self._holders.allocatable()
            held = by_uuid(await self._holders.holders())
        except HoldersUnknown as unknown:
            return f"device holders cannot be determined: {unknown}"
        return KubeletView(held, allocatable, fence)

    async def _busy(self, gpu: Gpu, held: Held) -> frozenset[str]:
        """Return UUIDs of a GPU that have processes although no pod holds them."""
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        try:
            processes = await self._driver.processes(gpu)
        except DriverProblem:
            return gpu.uuids  # unknown is not idle
        servers = self._servers(gpu.uuid)
        used = {
            by_gi.get(process["gi"] or 0) or gpu.uuid
            for process in processes
            if process["pid"] not in servers
        }
        return frozenset(device for device in used if device not in held)
