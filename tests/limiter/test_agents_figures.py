"""What the agent adds to a share's account: a context's memory, which only NVML knows of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.memory.shares import ShareAccounts
from tests.agent.devices import gpu, snapshot
from tests.limiter.tenant import line, tell

QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")


@pytest.mark.usefixtures("administrator")
def test_a_contexts_memory_is_charged(tenants, driver, tmp_path):
    driver.sim("context-memory", "0", "300")
    tenant = tenants(1000)
    script = (
        "cuda.allocate(200 * MIB); print('ready', flush=True)\n"
        "for _ in sys.stdin:\n"
        "    print(cuda.memory()[0] // MIB, tried(lambda: cuda.allocate(600 * MIB)), flush=True)\n"
    )
    process = tenant.start(script)
    assert line(process) == "ready"
    uuid = driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
    share = tmp_path / "state/shares/one"
    share.mkdir(parents=True)
    (share / "account").hardlink_to(tenant.account)
    (share / "limits").write_text((tenant.share / "limits").read_text())
    (share / "devices").write_text(f"{uuid}::0\n")

    async def processes(_: object) -> list[dict[str, Any]]:
        rows = (row.split(", ") for row in driver.smi("-i", "0", *QUERY).splitlines())
        return [{"pid": int(pid), "used_mib": int(used), "gi": None} for pid, used in rows]

    async def look() -> None:
        one = gpu(0)
        object.__setattr__(one, "uuid", uuid)
        node: Any = SimpleNamespace(snapshot=snapshot(one), processes=processes)
        accounts = ShareAccounts(
            node,
            SimpleNamespace(),  # type: ignore[arg-type]
            ShareFolder(tmp_path / "tenants", tmp_path / "state"),
        )
        loop = asyncio.create_task(accounts.run())
        await asyncio.sleep(3.5)
        assert not loop.done()
        loop.cancel()
        assert accounts.figures["one"].limits == {uuid: 1000 << 20}

    asyncio.run(look())
    tell(process)
    assert line(process) == "500 2"
    process.kill()
    process.wait()
    assert tenant.figures.used[0] == 0
