"""What is advertised of a node and why not, and when an installation is news to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.health import Health
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.container_edits import LIMITS as LIMITS_FILE
from divvy.agent.mps.supervision import Share
from divvy.agent.plugin import advertise
from divvy.agent.plugin.advertise import Advertiser
from divvy.agent.plugin.allocation import Refused
from divvy.agent.plugin.device_plugin import ResourceServer
from divvy.agent.plugin.inventory import AdvertisedGpu, Resource, with_clients
from divvy.agent.settings import settings_from
from divvy.model import DesiredGpu, Offer
from divvy.model.sharing import Sharing
from lab.fakes.scene import running
from tests.agent.devices import gpu, snapshot


async def test_wakes_the_agent_only_for_a_new_installation_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advertise, "_INSTALL_SECONDS", 0.001)
    outcomes = [True, False, False, True]
    woken: list[int] = []
    settings = settings_from(
        {
            "NODE_NAME": "n1",
            "NAMESPACE": "divvy-system",
            "POD_NAME": "divvy",
            "DIVVY_PLUGIN_FOLDER": str(tmp_path),
        }
    )
    nothing = cast("Any", None)
    advertiser = Advertiser(
        settings, nothing, nothing, nothing, nothing, lambda: woken.append(len(outcomes))
    )
    enough = asyncio.Event()

    def install() -> bool:
        if len(outcomes) == 1:
            loop.call_soon_threadsafe(enough.set)
        return outcomes.pop(0) if outcomes else False

    loop = asyncio.get_running_loop()
    advertiser.injection = cast("Any", SimpleNamespace(installed=False, install=install))
    async with running(advertiser.keep_installed()):
        async with asyncio.timeout(10):
            await enough.wait()
            while len(woken) < 2:
                await asyncio.sleep(0.001)
    assert woken == [3, 0]


WHOLE = Offer("nvidia.com/gpu", "gpu", None, Sharing())
LIMITED = Offer(
    "nvidia.com/gpu.shared", "gpu", None, Sharing(4, memory_mib=10240, weight=25, action="prevent")
)


async def advertised(
    tmp_path: Path, *offers: Offer, held: tuple[Holder, ...] = ()
) -> tuple[dict[str, str], list[Resource]]:
    """Return problems and lists of a node whose second GPU alone has open memory."""
    gpus = (gpu(0), replace(gpu(1), memory_problem="it is NUMA node 9 of the system"))
    lists: list[Resource] = []
    problems: dict[str, str] = {}
    settings = settings_from(
        {
            "NODE_NAME": "n1",
            "NAMESPACE": "divvy-system",
            "POD_NAME": "divvy",
            "DIVVY_DRIVER_ROOT": str(tmp_path),
        }
    )
    health = cast("Any", SimpleNamespace(health=Health()))
    holders = cast("Any", SimpleNamespace(last=held))
    mps = cast("Any", SimpleNamespace(problem=lambda _: ""))
    nothing = cast("Any", None)
    advertiser = Advertiser(settings, nothing, health, holders, mps, lambda: None)
    advertiser.injection = cast(
        "Any",
        SimpleNamespace(
            renew=lambda *_: None,
            described={one_gpu.uuid for one_gpu in gpus},
            limiter_problem="",
            by_cdi=True,
            share_folder=SimpleNamespace(mount=lambda: ""),
        ),
    )

    async def keep(resources: tuple[Resource, ...]) -> None:
        lists.extend(resources)

    advertiser.plugins = cast("Any", SimpleNamespace(advertise=keep, advertised=lambda: ()))
    layouts = (
        AdvertisedGpu(DesiredGpu(listed.uuid, listed.index, 0, None, (offer,)))
        for listed, offer in zip(gpus, offers, strict=True)
    )
    await advertiser.advertise(DesiredState(), layouts, snapshot(*gpus), "", problems)
    return problems, lists


async def test_offers_no_limited_share_of_open_memory_and_says_why(tmp_path: Path) -> None:
    problems, (shares,) = await advertised(tmp_path, LIMITED, LIMITED)
    assert problems == {
        "memory limits": "no limit of a GPU's memory holds: it is NUMA node 9 of the system"
    }
    assert {(device.gpu, device.unhealthy is None) for device in shares.devices} == {
        ("GPU-0", True),
        ("GPU-1", False),
    }


async def test_complains_of_open_memory_only_if_its_own_shares_are_limited(tmp_path: Path) -> None:
    """A whole GPU of such memory is as it should be, whatever another GPU of the node offers."""
    problems, (whole, shares) = await advertised(tmp_path, LIMITED, WHOLE)
    assert problems == {}
    assert all(device.unhealthy is None for device in (*whole.devices, *shares.devices))


SHARED = "nvidia.com/gpu.shared"
TURNS, TURN = Sharing(4, memory_mib=10240, weight=25, action="prevent"), "GPU-0::0"
BY_MPS, CLIENT = Sharing(4, memory_mib=10240, weight=25, threads=25), "GPU-0::mps-0"
LIMITS = Share("share_0", 10240, 25)


async def started(
    tmp_path: Path,
    sharing: Sharing,
    device_id: str,
    problem: str = "",
    mounted: Sequence[str] = (),
) -> list[Share]:
    """Start a container again whose resource is shared otherwise now; return what MPS prepares.

    Where files of a share are ``mounted``, they are gone since a boot.
    """
    prepared: list[Share] = []
    settings = settings_from({"NODE_NAME": "n1", "NAMESPACE": "divvy-system", "POD_NAME": "divvy"})
    held = Holder("default/p", "main", SHARED, device_id, "uid")

    async def containers() -> tuple[Holder, ...]:
        return (held,)

    async def prepare(_: str, share: Share, *, alone: bool) -> None:
        assert alone
        prepared.append(share)

    holders = SimpleNamespace(
        containers=containers,
        without_limiter=lambda: {("uid", "main", SHARED)},
        mounted=lambda path: {("uid", "main", SHARED): "/"} if path in mounted else {},
        suspects=frozenset(),
        device_nodes=dict,
    )
    mps = SimpleNamespace(
        problem=lambda _: problem,
        memory=lambda _: tmp_path,
        as_started=lambda _, share: replace(share, memory_mib=10240, threads=25),
        prepare=prepare,
    )
    driver = SimpleNamespace(snapshot=snapshot(gpu(0)))
    others = cast("tuple[Any, Any, Any, Any]", (driver, None, holders, mps))
    advertiser = Advertiser(settings, *others, lambda: None)
    has_no_files = SimpleNamespace(has=lambda _: False)
    nodes = {"GPU-0": frozenset({"/dev/nvidia0"})}
    advertiser.injection = cast(
        "Any", SimpleNamespace(share_folder=has_no_files, gpu_nodes=lambda: nodes)
    )
    # Of a change that waits for its holder nothing is listed.
    await advertiser.start_container(Resource(SHARED, (), "gpu", sharing), [device_id])
    return prepared


async def test_starts_a_container_of_turns_again_if_the_profile_has_mps_now(tmp_path: Path) -> None:
    """Its GPU has no daemon before its last holder has ended."""
    assert await started(tmp_path, BY_MPS, TURN, "it is not to have an MPS daemon now") == []


@pytest.mark.parametrize("sharing", [TURNS, Sharing(4)])
async def test_starts_a_client_again_behind_its_daemon_if_the_profile_has_none_now(
    tmp_path: Path, sharing: Sharing
) -> None:
    """Without one it would have the whole GPU. The daemon knows what the container had."""
    assert await started(tmp_path, sharing, CLIENT) == [LIMITS]
    with pytest.raises(Refused, match="its MPS daemon is starting; the start will be retried"):
        await started(tmp_path, sharing, CLIENT, "its MPS daemon is starting")


@pytest.mark.parametrize(
    ("sharing", "device_id"), [(BY_MPS, TURN), (TURNS, CLIENT), (Sharing(4), CLIENT)]
)
async def test_starts_no_container_whose_limits_a_boot_took_if_its_profile_has_gone(
    tmp_path: Path, sharing: Sharing, device_id: str
) -> None:
    """A runtime makes folders in their place, and the next container could not have its files."""
    with pytest.raises(Refused, match="files are gone since the node was booted: delete the pod"):
        await started(tmp_path, sharing, device_id, mounted=[LIMITS_FILE])


def test_asks_before_starts_while_clients_of_an_earlier_profile_are_left(tmp_path: Path) -> None:
    async def scene(holders: tuple[Holder, ...]) -> bool:
        (resource,) = with_clients([Resource(SHARED, (), "gpu", Sharing(4))], holders)
        server = ResourceServer(resource, tmp_path, cast("Any", None), lambda _: None)
        return bool(server.options.pre_start_required)

    assert asyncio.run(scene((Holder("default/p", "main", SHARED, CLIENT, "uid"),)))
    assert not asyncio.run(scene((Holder("default/p", "main", SHARED, TURN, "uid"),)))


async def test_serves_clients_whose_resource_no_profile_has_any_more(tmp_path: Path) -> None:
    """The next agent, too: a kubelet does not ask, or refuses forever, if no plugin serves it."""
    held = Holder("default/p", "main", SHARED, CLIENT, "uid")
    turns = Holder("default/q", "main", "nvidia.com/gpu.turns", TURN, "uid-q")
    _, (whole, shares) = await advertised(tmp_path, WHOLE, WHOLE, held=(held, turns))
    assert not whole.has_clients
    assert shares == Resource(SHARED, (), "gpu", has_clients=True)
    # One that is served still keeps its limits, by which its holders are watched.
    served = Resource(SHARED, (), "gpu", BY_MPS, has_clients=True)
    assert list(with_clients([whole], [held], [served])) == [whole]
