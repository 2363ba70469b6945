"""Which devices libcuda shows, and what it says of them."""

import ctypes as c

import pytest

from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import fails
from lab.driver_clients.cuda_process import run

FIRST, SECOND, THIRD = (gpu_uuid("test", index) for index in range(3))


def test_lists_devices_with_their_properties(install):
    cuda = install("H100-SXM5-80GB", 2).cuda()
    with fails(codes.NOT_INITIALIZED):
        cuda.count()
    cuda.init()
    assert cuda.count() == 2
    assert cuda.name(1) == "NVIDIA H100 80GB HBM3"
    assert cuda.uuid(1) == gpu_uuid("test", 1).removeprefix("GPU-")
    total = c.c_size_t()
    cuda.call("cuDeviceTotalMem_v2", c.byref(total), 0)
    assert total.value == 81559 << 20
    assert (cuda.attribute(75), cuda.attribute(76)) == (9, 0)
    assert (cuda.attribute(16), cuda.attribute(10), cuda.attribute(1)) == (132, 32, 1024)
    bus = c.create_string_buffer(20)
    cuda.call("cuDeviceGetPCIBusId", bus, 20, 1)
    assert bus.value == b"0000:0f:00.0"
    version = c.c_int()
    cuda.call("cuDriverGetVersion", c.byref(version))
    assert version.value == 12040
    with fails(codes.INVALID_DEVICE):
        cuda.name(2)
    with fails(codes.INVALID_VALUE):
        cuda.attribute(9999)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,9,1", [0]),
        ("-1", []),
        ("none", []),
        (SECOND, [1]),
        (THIRD[:9], [2]),
        (f"{THIRD},{FIRST}", [2, 0]),
        ("GPU-", []),
        ("1,1", [1]),
        (f"0,{FIRST}", [0]),
    ],
)
def test_follows_the_visible_devices_variable(install, monkeypatch, value, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    cuda = install("A100-SXM4-40GB", 3).cuda()
    assert cuda.code("cuInit", 0) == (0 if expected else codes.NO_DEVICE)
    if expected:
        uuids = [FIRST, SECOND, THIRD]
        names = [f"GPU-{cuda.uuid(index)}" for index in range(cuda.count())]
        assert names == [uuids[index] for index in expected]


def test_shows_no_gpu_when_the_environment_names_none(install, monkeypatch):
    driver = install("A100-SXM4-40GB", 2)
    (driver.root / "dev/nvidia0").unlink()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", FIRST)
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    assert driver.cuda().code("cuInit", 0) == codes.NO_DEVICE
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert run(driver, "print(name(0), count())").endswith(" 1")


@pytest.mark.parametrize(
    ("node", "code"), [("nvidiactl", 100), ("nvidia-uvm", 999), ("nvidia0", 100)]
)
def test_reports_a_missing_node(install, node, code):
    driver = install()
    (driver.root / "dev" / node).unlink()
    assert driver.cuda().code("cuInit", 0) == code


@pytest.mark.usefixtures("administrator")
def test_lists_mig_devices(install):
    driver = install("A100-SXM4-40GB", 1)
    driver.smi("-mig", "1")
    assert driver.cuda().code("cuInit", 0) == codes.NO_DEVICE
    driver.smi("mig", "-cgi", "3g.20gb,1g.5gb", "-C")
    uuids = [line.split("UUID: ")[1].rstrip(")") for line in driver.smi("-L").splitlines()[1:]]
    show = "print(count(), name(), cuda.uuid(), cuda.attribute(16))\n"
    show += "cuda.context(); print(cuda.memory())"
    text = run(driver, show)
    assert text.splitlines()[0] == f"1 NVIDIA A100-SXM4-40GB MIG 3g.20gb {uuids[0][4:]} 42"
    assert text.splitlines()[1] == f"({20096 << 20}, {20096 << 20})"
    for chosen in (uuids[1], uuids[1][:12], f"{uuids[1]},{uuids[0]}", f"MIG-{FIRST}/7/0"):
        text = run(driver, show, CUDA_VISIBLE_DEVICES=chosen)
        assert text.splitlines()[0] == f"1 NVIDIA A100-SXM4-40GB MIG 1g.5gb {uuids[1][4:]} 14"
    holder = driver.hold(4000, CUDA_VISIBLE_DEVICES=uuids[1])
    assert holder.stdout.readline() == "0\n"
    refused = driver.hold(1000, CUDA_VISIBLE_DEVICES=uuids[1])
    assert refused.stdout.readline() == f"{codes.OUT_OF_MEMORY}\n"
    elsewhere = driver.hold(19000, CUDA_VISIBLE_DEVICES=uuids[0])
    assert elsewhere.stdout.readline() == "0\n"
