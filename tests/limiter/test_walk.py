"""A short walk of tenants; ``python -m tests.limiter.walk SEED STEPS`` takes a longer one."""

from __future__ import annotations

import struct

import pytest

from tests.limiter.walk import Broken, Share, Walk, walk

_SEED, _STEPS = 11, 400


def test_keeps_its_promises_on_a_walk_of_tenants(driver, limiter, tmp_path):
    walked = walk(driver, tmp_path, limiter, _SEED, _STEPS)
    assert walked.count["memory checks"] > 0
    assert walked.parts


def test_finds_held_and_uncharged_memory_on_a_walk(driver, tenants):
    tenant = tenants(1000)
    share = Share(tenant)
    walked = Walk(driver, [share], None)  # type: ignore[arg-type]
    process = share.start()
    assert process.does("plain", 100) > 0
    walked.check_memory()
    with tenant.account.open("r+b") as account:
        account.seek(8 + 5 * 128 + 16)
        account.write(struct.pack("<Q", 0))
    with pytest.raises(Broken, match="the driver says 100 MiB, the account 0"):
        walked.check_memory()


def test_finds_what_is_left_at_the_end_of_a_walk(driver, tenants):
    tenant = tenants(1000)
    walked = Walk(driver, [Share(tenant)], None)  # type: ignore[arg-type]
    walked.end()
    holder = tenant.start(
        "cuda.allocate(100 * MIB); print('ready', flush=True); sys.stdin.readline()"
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(Broken, match="1 slots"):
        walked.end()
