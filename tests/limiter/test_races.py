"""Processes that go for one share's memory at once, and processes that die while they do."""

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.limiter.programs import compiled
from tests.limiter.tenant import Tenant, line, tell

MIB = 1 << 20
# As many as a missing lock does not survive; a long run is asked for: DIVVY_LIMITER_ROUNDS=100000.
ROUNDS = int(os.environ.get("DIVVY_LIMITER_ROUNDS", "3000"))
KILLS = ROUNDS // 100


@pytest.fixture(scope="session")
def race(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("race") / "race"
    source = Path(__file__).with_name("race.c")
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", *flags, "-o", program, source, "-ldl", "-lpthread"], check=True)
    return program


def run(race: Path, tenant: Tenant, *arguments: int) -> list[str]:
    done = subprocess.run(
        [race, *map(str, arguments)],
        env={**os.environ, "LIBCUDA": str(tenant.library("libcuda.so.1"))},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_grants_600_of_1024_to_exactly_one_of_two(tenants, race):
    assert run(race, tenants(1024), ROUNDS, 2, 600 * MIB) == [f"1 {ROUNDS}"]


def test_grants_a_tenth_to_exactly_ten_of_thirty_two(tenants, race):
    rounds = ROUNDS // 30
    assert run(race, tenants(1000), rounds, 32, 100 * MIB) == [f"10 {rounds}"]


def test_leaves_nothing_of_a_process_killed_while_allocating(tenants, race, driver):
    tenant = tenants(1024)
    watcher = tenant.start(
        "print('ready', flush=True)\nfor _ in sys.stdin:\n    print(cuda.memory()[0], flush=True)\n"
    )
    assert line(watcher) == "ready"
    generator = random.Random(5)
    for seed in range(KILLS):
        churning = subprocess.Popen(
            [race, "churn", str(seed)],
            env={**os.environ, "LIBCUDA": str(tenant.library("libcuda.so.1"))},
            stdout=subprocess.PIPE,
        )
        assert churning.stdout is not None
        churning.stdout.readline()
        time.sleep(generator.random() * 0.02)
        churning.kill()
        churning.communicate()
        tell(watcher)
        assert line(watcher) == str(1024 * MIB)
    assert [len(tenant.figures.slots), tenant.figures.used[0]] == [1, 0]
    # The driver says the same.
    deadline = time.monotonic() + 2
    while driver.used_mib()[0] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert driver.used_mib() == [0, 0]
    tell(watcher)


def test_charges_a_context_at_the_address_of_one_that_ends(tenants, tmp_path):
    # Memory that one thread frees is at once the other's.
    shared = {"MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    command = [compiled("contexts.c", tmp_path), tenants(1000).library("libcuda.so.1"), str(ROUNDS)]
    done = subprocess.run(
        command, env=os.environ | shared, capture_output=True, text=True, check=True, timeout=600
    )
    assert done.stdout == "0\n"
