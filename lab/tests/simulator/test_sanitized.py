"""Rubbish under the address and undefined-behaviour sanitizers: none of it does harm."""

import contextlib
import os
import random
import re
import socket
import struct
import subprocess
from pathlib import Path

import pytest

from lab.cluster.simulated_driver import SOURCE
from lab.driver_clients.driver_root import VERSION, DriverRoot, eventually
from tests.sanitized import run_sanitized

pytestmark = pytest.mark.lab
# What would only start the same code again stays out.
STARTS_AGAIN = (
    "visible",
    "environment_names_none",
    "published",
    "eight",
    "sixteen",
    "missing_node",
)
STARTS_AGAIN += ("another_process", "two_processes_share")
MAGIC, PROTOCOL = 0x56564944, 1
# Messages by name, in the order of the header that the daemon is built with.
_ENUM = (SOURCE / "common/protocol.h").read_text().partition("enum sim_type {")[2].partition("}")[0]
NUMBERS = {name: number for number, name in enumerate(re.findall(r"^    (\w+)", _ENUM, re.M), 1)}
ALLOCATE, BUSY = NUMBERS["SIM_ALLOCATE"], NUMBERS["SIM_BUSY"]
TYPES = NUMBERS["SIM_TYPE_COUNT"] - 1


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory):
    """A driver built under the sanitizers; at the end its daemon must not have complained."""
    command = ["make", "--silent", f"--jobs={os.cpu_count()}", "-C", str(SOURCE), "asan"]
    subprocess.run(command, check=True)
    driver = DriverRoot(tmp_path_factory.mktemp("asan") / "root", SOURCE / "build/asan")
    driver.install("A100-SXM4-40GB", 2)
    driver.stop()
    log = driver.root / "daemon.log"
    with log.open("w") as errors:
        daemon = subprocess.Popen(
            [
                str(driver.root / "usr/bin/divvy-simd"),
                "--foreground",
                "--root",
                str(driver.root),
                "--description",
                str(driver.root / "etc/divvy-simd.conf"),
            ],
            stderr=errors,
        )
    assert eventually(lambda: "simulated driver" in show(driver))
    yield driver
    daemon.terminate()
    assert daemon.wait(10) == 0, log.read_text()
    assert log.read_text() == ""


def show(driver: DriverRoot) -> str:
    command = [str(driver.root / "usr/bin/divvy-sim"), "show"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def connect(driver: DriverRoot) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(5)
    connection.connect(str(driver.root / "run/nvidia-persistenced/socket"))
    return connection


def frame(kind: int, body: bytes, length: int | None = None, magic: int = MAGIC) -> bytes:
    size = len(body) if length is None else length
    return struct.pack("IHHIi", magic, PROTOCOL, kind, size, 0) + body


def received(client: socket.socket, length: int) -> bytes:
    """Return so many bytes of the daemon's; fail where it has closed the connection."""
    data = b""
    while len(data) < length:
        part = client.recv(length - len(data))
        assert part, "the daemon has closed the connection"
        data += part
    return data


HELLO = frame(1, struct.pack("32sII", VERSION.encode(), 1, 0))


def lengths(driver: DriverRoot) -> dict[int, int]:
    """Find out how long each type's structure is: all other lengths are refused."""
    known = {}
    sizes = [8, 16, 24, 32, 40, 48, 56, 64, *range(72, 700, 8), 6408, 10328]
    for kind in range(2, TYPES + 1):
        for size in sizes:
            answer = b""
            with connect(driver) as client, contextlib.suppress(ConnectionError):
                client.sendall(HELLO + frame(kind, bytes(size)))
                client.shutdown(socket.SHUT_WR)
                while chunk := client.recv(65536):
                    answer += chunk
            if len(answer) > len(HELLO):
                known[kind] = size
                break
    return known


def test_drops_only_the_sender_of_a_malformed_message(sanitized):
    generator = random.Random(11)
    bystander = connect(sanitized)
    bystander.sendall(HELLO)
    assert len(bystander.recv(100)) == len(HELLO)
    for _ in range(400):
        what = generator.randrange(6)
        rubbish = generator.randbytes(generator.randrange(1, 3000))
        with connect(sanitized) as client, contextlib.suppress(ConnectionError):
            if what == 0:
                client.sendall(rubbish)
            elif what == 1:
                client.sendall(HELLO + rubbish)
            elif what == 2:
                client.sendall(HELLO + frame(generator.randrange(70), rubbish))
            elif what == 3:
                client.sendall(HELLO + frame(2, b"", generator.getrandbits(32)))
            elif what == 4:
                client.sendall(HELLO + HELLO)
            else:
                client.sendall(frame(generator.randrange(2, TYPES), bytes(40)))
            client.shutdown(socket.SHUT_WR)
            while client.recv(65536):
                pass
    bystander.sendall(frame(ALLOCATE, bytes(40)))
    assert len(bystander.recv(100)) > 0
    bystander.close()
    assert "simulated driver" in show(sanitized)


def test_answers_well_formed_nonsense(sanitized):
    generator = random.Random(12)
    known = lengths(sanitized)
    # All but the one that only the daemon sends and the one that has no answer.
    assert len(known) == TYPES - 3
    known[BUSY] = 16
    numbers = [0, 1, 2, 7, 14, 15, 16, 19, 0xFFFFFFFF, 0x7FFFFFFF, 1 << 40]
    with connect(sanitized) as client:
        client.sendall(HELLO)
        assert client.recv(1000)
        for _ in range(3000):
            kind = generator.choice(list(known))
            body = b"".join(
                struct.pack(
                    "Q", generator.choice(numbers) | generator.choice(numbers) << 32 & (1 << 64) - 1
                )
                for _ in range(known[kind] // 8)
            )
            client.sendall(frame(kind, body))
            if kind == BUSY:
                continue
            while True:
                _, _, back, size, _ = struct.unpack("IHHIi", received(client, 16))
                received(client, size)
                if back == kind:
                    break
    assert "simulated driver" in show(sanitized)


@pytest.mark.usefixtures("sanitized")
def test_passes_its_tests_under_the_sanitizers():
    files = (
        "test_ptx_instructions.py",
        "test_ptx_programs.py",
        "test_ptx_refusals.py",
        "test_cuda_devices.py",
        "test_cuda_memory.py",
        "test_cuda_memory_kinds.py",
        "test_cuda_streams.py",
        "test_cuda_captures.py",
        "test_cuda_graphs.py",
        "test_cuda_graph_memory.py",
        "test_cuda_gpu_time.py",
        "test_cuda_contexts.py",
        "test_cuda_modules.py",
        "test_cuda_libraries.py",
        "test_cuda_launches.py",
        "test_cuda_entry_points.py",
        "test_cuda_faults.py",
        "test_mps.py",
        "test_mps_v3.py",
        "test_memory_limits.py",
        "test_nvml.py",
        "test_mig_instances.py",
        "test_mig_mode.py",
        "test_faults.py",
    )
    folder = Path(__file__).parent
    build = str(SOURCE / "build/asan")
    run_sanitized([folder / file for file in files], STARTS_AGAIN, DIVVY_SIMULATOR_BUILD=build)
