"""A driver whose kernel module and libraries are of two versions, or that is not there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from divvy.agent.driver_root import libraries_problem
from lab.fakes.agent import VERSION, AgentNode, agent_node
from lab.fakes.dra_kubelet import Failed
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import ON_DEMAND, claims_node, names, nothing_left, record, tainted

pytestmark = on_simulated_node
GPU = "nvidia.com/gpu"
UPGRADED = "570.133.20"


def upgrade_libraries(node: AgentNode) -> None:
    """Replace the driver's libraries, as a package does; the module stays the loaded one."""
    folder = node.driver / "usr/lib/x86_64-linux-gnu"
    for stem in ("libcuda", "libnvidia-ml"):
        (folder / f"{stem}.so.{VERSION}").rename(folder / f"{stem}.so.{UPGRADED}")
        (folder / f"{stem}.so.1").unlink()
        (folder / f"{stem}.so.1").symlink_to(f"{stem}.so.{UPGRADED}")


async def test_withdraws_gpus_whose_libraries_were_replaced_under_the_module() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        upgrade_libraries(node)
        await node.offered(GPU, 0)
        await node.until(lambda: UPGRADED in node.status["reason"])
        assert node.status["state"] == "Degraded"
        assert VERSION in node.status["reason"]
        assert "reboot the node" in node.status["reason"]
        assert not list((node.folder / "cdi").glob("*.json"))


async def test_prepares_no_claim_whose_libraries_were_replaced_under_the_module() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        running = node.api.resources.allocate(
            "running", f"{gpu}-share", memory="3000Mi", cores="10"
        )
        await node.claims.prepare(running)
        upgrade_libraries(node)
        await node.until(lambda: bool(tainted(node, "unhealthy")))
        assert not list((node.folder / "cdi").glob("*.json"))
        late = node.api.resources.allocate("late", f"{gpu}-share", memory="2000Mi", cores="10")
        waiting = asyncio.create_task(node.claims.prepare(late))
        await asyncio.sleep(1)
        await node.claims.unprepare(late)  # gives the waiting one up
        with pytest.raises(Failed, match=UPGRADED):
            await waiting


@pytest.mark.parametrize("boot", ["no module", "another boot"])
async def test_releases_a_mig_claim_on_a_node_that_booted_without_its_driver(boot: str) -> None:
    """The installer of the driver waits until all that hold GPUs are gone."""
    async with claims_node(1, ON_DEMAND) as node:
        boot_file = node.driver / "proc/sys/kernel/random/boot_id"
        boot_file.parent.mkdir(parents=True)
        boot_file.write_text("the first boot\n")
        await node.kill()
        await node.start()
        (gpu,) = names(node, "gpu")
        registrations = node.claims.registrations
        await node.until(lambda: node.claims.registrations > registrations)
        claim = node.api.resources.allocate("mig", f"{gpu}-mig-1g5gb-0")
        await node.claims.prepare(claim)
        await node.kill()
        node.smi("mig", "-dci")
        node.smi("mig", "-dgi")
        (node.driver / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
        if boot == "no module":
            (node.driver / "proc/driver/nvidia/version").unlink()
        else:
            boot_file.write_text("another boot\n")
        registrations = node.claims.registrations
        await node.start()
        await node.until(lambda: node.claims.registrations > registrations)
        await node.claims.unprepare(claim)
        assert not record(node)["claims"]


async def test_keeps_a_mig_claim_while_the_driver_of_this_boot_is_away() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        claim = node.api.resources.allocate("mig", f"{gpu}-mig-1g5gb-0")
        await node.claims.prepare(claim)
        library = node.driver / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
        library.rename(library.with_name("hidden"))
        await node.until(lambda: bool(tainted(node, "unhealthy")))
        waiting = asyncio.create_task(node.claims.unprepare(claim))
        await node.throughout(2, lambda: not waiting.done())
        library.with_name("hidden").rename(library)
        await waiting
        await node.until(nothing_left(node))


def test_names_what_is_missing_of_a_loaded_driver(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").touch()
    assert libraries_problem(tmp_path, "") == ""
    assert "has no libcuda.so.550.1: install" in libraries_problem(tmp_path, "550.1")
    (folder / "libcuda.so.570.2").touch()
    assert "is 550.1, its libraries in /usr/lib64 are 570.2" in libraries_problem(tmp_path, "550.1")
    (folder / "libcuda.so.550.1").touch()
    assert libraries_problem(tmp_path, "550.1") == ""
