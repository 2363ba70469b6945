"""What the agent adds to a share's account: a context's memory, which only NVML knows of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.containers import Member, Process
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.memory.shares import ShareAccounts
from tests.agent.devices import gpu, snapshot
from tests.limiter.tenant import line, tell

QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")


@pytest.fixture
def look(tenants, driver, tmp_path, monkeypatch):
    """Give a tenant of 1,000 MiB, and the agent's look at its share for a while."""
    in_pod = Process(1, 1), Member("uid", "c" * 64)
    monkeypatch.setattr("divvy.agent.memory.shares.find_process", lambda _: in_pod)
    tenant = tenants(1000)
    uuid = driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]

    async def processes(_: object) -> list[dict[str, Any]]:
        rows = (row.split(", ") for row in driver.smi("-i", "0", *QUERY).splitlines())
        return [{"pid": int(pid), "used_mib": int(used), "gi": None} for pid, used in rows]

    async def scene() -> None:
        share = tmp_path / "tenants/shares/one"
        share.mkdir(parents=True)
        (share / "account").hardlink_to(tenant.account)
        (share / "limits").write_text((tenant.share / "limits").read_text())
        (share / "devices").write_text(f"{uuid}::0\n")
        card = gpu(0)
        object.__setattr__(card, "uuid", uuid)
        node: Any = SimpleNamespace(snapshot=snapshot(card), processes=processes)
        held: Any = SimpleNamespace(last=(Holder("team/a", "", "", f"{uuid}::0", "uid"),))
        shares = ShareFolder(tmp_path / "tenants")
        accounts = ShareAccounts(node, held, shares, tmp_path / "logs")
        loop = asyncio.create_task(accounts.run())
        await asyncio.sleep(3.5)
        assert not loop.done()
        loop.cancel()
        assert accounts.figures["one"].limits == {uuid: 1000 << 20}

    return tenant, lambda: asyncio.run(scene())


TRIES = (
    "cuda.allocate(200 * MIB); print('ready', flush=True)\n"
    "for _ in sys.stdin:\n"
    "    print(cuda.memory()[0] // MIB, tried(lambda: cuda.allocate(600 * MIB)), flush=True)\n"
)


@pytest.mark.usefixtures("administrator")
def test_charges_a_contexts_memory(look, driver):
    driver.sim("context-memory", "0", "300")
    tenant, looked = look
    process = tenant.start(TRIES)
    assert line(process) == "ready"
    looked()
    tell(process)
    assert line(process) == "500 2"
    process.kill()
    process.wait()
    assert tenant.figures.used[0] == 0


def test_charges_a_program_that_opens_the_drivers_library_itself(look, driver):
    tenant, looked = look
    process = tenant.start(TRIES)
    assert line(process) == "ready"
    past_the_limiter = driver.hold(300)
    assert line(past_the_limiter) == "0"
    looked()
    tell(process)
    assert line(process) == "500 2"
