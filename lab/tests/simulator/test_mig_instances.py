"""MIG instances from creation to destruction, against the published tables."""

import ctypes
import random
import stat
import subprocess
import sys

import pynvml as nvml
import pytest

from lab.driver_clients.mig_calls import (
    CI_NUMBER,
    create_at,
    fill,
    mig_devices,
    placements,
    profiles,
    switched_on,
)
from lab.tests.simulator.mig_oracle import A30, A100_40, COMPUTE, H100_80, RTX_PRO_6000, Oracle

pytestmark = pytest.mark.usefixtures("administrator")
CARDS = [
    ("A100-SXM4-40GB", A100_40),
    ("H100-SXM5-80GB", H100_80),
    ("A30", A30),
    ("RTX-PRO-6000", RTX_PRO_6000),
]
SHARED = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED


@pytest.mark.parametrize(("model", "table"), CARDS)
def test_offers_the_published_profiles_and_placements(install, model, table):
    install(model).nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    infos = profiles(gpu)
    for identifier, (name, compute, memory, starts, most) in table.items():
        info = infos[identifier]
        assert info.name in (f"MIG {name}", f"MIG {name}".encode())
        assert (info.sliceCount, info.instanceCount) == (compute, most)
        # NVML lists placements although MIG is off.
        assert placements(gpu, identifier) == [(start, memory) for start in starts]


def test_has_no_instances_without_mig_mode(install):
    install().nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    array, count = (nvml.c_nvmlGpuInstance_t * 7)(), ctypes.c_uint(7)
    for refused in (
        lambda: nvml.nvmlDeviceCreateGpuInstance(gpu, 19),
        lambda: nvml.nvmlDeviceGetGpuInstances(gpu, 19, array, ctypes.byref(count)),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            refused()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, 19) == 7
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)


def test_creates_and_destroys_a_mig_device(install):
    driver, gpu = switched_on(install)
    gi = create_at(gpu, 9, 4, 4)
    info = nvml.nvmlGpuInstanceGetInfo(gi)
    assert (info.profileId, info.placement.start, info.placement.size) == (9, 4, 4)
    assert mig_devices(gpu) == []
    ci = fill(gi, 3)
    assert nvml.nvmlComputeInstanceGetInfo(ci).profileId == 2
    (mig,) = mig_devices(gpu)
    assert nvml.nvmlDeviceIsMigDeviceHandle(mig).value == 1
    assert nvml.nvmlDeviceIsMigDeviceHandle(gpu).value == 0
    assert nvml.nvmlDeviceGetName(mig) == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    uuid = nvml.nvmlDeviceGetUUID(mig)
    assert uuid.startswith("MIG-")
    assert len(uuid) == 40
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByUUID(uuid)) == uuid
    assert nvml.nvmlDeviceGetGpuInstanceId(mig) == info.id
    assert nvml.nvmlDeviceGetComputeInstanceId(mig) == 0
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
    assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu)
    attributes = nvml.nvmlDeviceGetAttributes(mig)
    assert (attributes.multiprocessorCount, attributes.memorySizeMB) == (42, 20096)
    assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 3)
    assert nvml.nvmlDeviceGetMemoryInfo(mig).total == 20096 << 20
    for refused in (nvml.nvmlDeviceGetUtilizationRates, nvml.nvmlDeviceGetMinorNumber):
        with pytest.raises(nvml.NVMLError_NotSupported):
            refused(mig)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(gpu)
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlGpuInstanceDestroy(gi)
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlDeviceSetMigMode(gpu, 0)
    nvml.nvmlComputeInstanceDestroy(ci)
    for gone in (lambda: nvml.nvmlComputeInstanceDestroy(ci), lambda: nvml.nvmlDeviceGetUUID(mig)):
        with pytest.raises(nvml.NVMLError_NotFound):
            gone()
    nvml.nvmlGpuInstanceDestroy(gi)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlGpuInstanceGetInfo(gi)
    again = create_at(gpu, 9, 4, 4)
    fill(again, 3)
    assert nvml.nvmlDeviceGetUUID(mig_devices(gpu)[0]) != uuid
    assert driver.smi("-L").count("MIG 3g.20gb") == 1


def test_refuses_wrong_arguments_of_creation(install):
    _, gpu = switched_on(install)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceCreateGpuInstance(gpu, 77)
    for start, size in ((1, 4), (0, 2), (8, 4)):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            create_at(gpu, 9, start, size)
    nvml.nvmlDeviceCreateGpuInstance(gpu, 0)
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        nvml.nvmlDeviceCreateGpuInstance(gpu, 19)


def test_chooses_a_placement_that_leaves_space(install):
    _, gpu = switched_on(install)
    chosen = []
    for profile in (9, 5):
        info = nvml.nvmlGpuInstanceGetInfo(nvml.nvmlDeviceCreateGpuInstance(gpu, profile))
        chosen.append((info.placement.start, info.placement.size))
    assert chosen == [(4, 4), (0, 4)]


@pytest.mark.parametrize(("model", "table"), CARDS)
def test_follows_the_tables_in_random_sequences(install, model, table):
    _, gpu = switched_on(install, model)
    generator = random.Random(model)
    oracle = Oracle(table)
    handles = {}
    for step in range(400):
        if oracle.placed and generator.random() < 0.4:
            key = generator.choice(list(oracle.placed))
            nvml.nvmlGpuInstanceDestroy(handles.pop(key))
            del oracle.placed[key]
        else:
            profile = generator.choice(list(table))
            _, _, size, starts, _ = table[profile]
            start = generator.choice([*starts, *starts, 1])
            if start not in starts:
                expected = nvml.NVMLError_InvalidArgument
            elif not oracle.fits(profile, start):
                expected = nvml.NVMLError_InsufficientResources
            else:
                expected = None
            if expected is None:
                handles[step] = create_at(gpu, profile, start, size)
                oracle.placed[step] = (profile, start)
            else:
                with pytest.raises(expected):
                    create_at(gpu, profile, start, size)
        if step % 7 == 0:
            for profile in table:
                room = nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, profile)
                assert room == oracle.room(profile), (step, profile, oracle.placed)
    identifiers = {nvml.nvmlGpuInstanceGetInfo(handle).id for handle in handles.values()}
    assert len(identifiers) == len(handles) == len(oracle.placed)


@pytest.mark.parametrize(("profile", "slices"), [(19, 1), (14, 2), (9, 3), (5, 4), (0, 7)])
def test_fills_a_gpu_instance_with_compute_instances(install, profile, slices):
    _, gpu = switched_on(install)
    gi = nvml.nvmlDeviceCreateGpuInstance(gpu, profile)
    for size, most in COMPUTE[slices].items():
        info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, CI_NUMBER[size], SHARED)
        assert (info.sliceCount, info.instanceCount) == (size, most)
        assert nvml.nvmlGpuInstanceGetComputeInstanceRemainingCapacity(gi, CI_NUMBER[size]) == most
        instances = [fill(gi, size) for _ in range(most)]
        with pytest.raises(nvml.NVMLError_InsufficientResources):
            fill(gi, size)
        assert len({nvml.nvmlDeviceGetUUID(mig) for mig in mig_devices(gpu)}) == most
        if size < slices:
            assert f"MIG {size}c." in nvml.nvmlDeviceGetName(mig_devices(gpu)[0])
        for instance in instances:
            nvml.nvmlComputeInstanceDestroy(instance)
    for size in set(CI_NUMBER) - set(COMPUTE[slices]):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, CI_NUMBER[size], SHARED)
    nvml.nvmlGpuInstanceDestroy(gi)


def test_creates_files_and_nodes_of_capabilities(install):
    driver, gpu = switched_on(install, count=2)
    gi = nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    fill(gi, 1)
    identifier = nvml.nvmlGpuInstanceGetInfo(gi).id
    listed = (driver.root / "proc/driver/nvidia-caps/mig-minors").read_text()
    minors = dict(line.split() for line in listed.splitlines())
    assert (minors["config"], minors["monitor"]) == ("1", "2")
    assert len(set(minors.values())) == len(minors) == 2 + 2 * 15 * 9
    # On real systems gpu0/gi0/access is 3 and gpu1 begins 135 later.
    assert (minors["gpu0/gi0/access"], minors["gpu0/gi0/ci0/access"]) == ("3", "4")
    assert minors["gpu1/gi0/access"] == "138"
    folder = driver.root / f"proc/driver/nvidia/capabilities/gpu0/mig/gi{identifier}"
    for path, key in (("access", "access"), ("ci0/access", "ci0/access")):
        minor = minors[f"gpu0/gi{identifier}/{key}"]
        assert f"DeviceFileMinor: {minor}\n" in (folder / path).read_text()
        node = (driver.root / f"dev/nvidia-caps/nvidia-cap{minor}").stat()
        assert stat.S_ISCHR(node.st_mode)
        assert stat.S_IMODE(node.st_mode) == 0o444
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(gi, 0))
    nvml.nvmlGpuInstanceDestroy(gi)
    assert not folder.exists()


def test_requires_both_nodes_of_a_mig_device(install):
    driver, gpu = switched_on(install)
    for _ in range(3):
        fill(nvml.nvmlDeviceCreateGpuInstance(gpu, 19), 1)
    listed = driver.smi("-L")
    assert listed.count("MIG-") == 3
    nodes = sorted(
        (driver.root / "dev/nvidia-caps").iterdir(), key=lambda node: int(node.name[10:])
    )
    nodes[2].unlink()  # of the first GPU instance
    nodes[5].unlink()  # of the second one's compute instance
    assert driver.smi("-L").count("MIG-") == 1
    assert len(mig_devices(gpu)) == 1


@pytest.mark.parametrize(
    "lower",
    ["os.setuid(65534)", "drop_administration()"],
    ids=["a user", "a container's root"],
)
def test_requires_an_administrator_for_changes(install, lower):
    driver, gpu = switched_on(install)
    nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    for folder in driver.root.parents[:3]:
        folder.chmod(0o755)
    assert (
        run_python(
            "import ctypes as c, os",
            "def drop_administration():",
            "    libc, header = c.CDLL(None), (c.c_uint32 * 2)(0x20080522, 0)",
            "    data = (c.c_uint32 * 6)()",
            "    assert libc.capget(header, data) == 0",
            "    data[0] &= ~(1 << 21)",
            "    data[1] &= ~(1 << 21)",
            "    assert libc.capset(header, data) == 0",
            f"n = c.CDLL({str(driver.library('libnvidia-ml.so.1'))!r})",
            lower,
            "h, g, s = c.c_void_p(), c.c_void_p(), c.c_int()",
            "print(n.nvmlInit_v2(), n.nvmlDeviceGetHandleByIndex_v2(0, c.byref(h)),",
            "      n.nvmlDeviceSetMigMode(h, 0, c.byref(s)),",
            "      n.nvmlDeviceCreateGpuInstance(h, 19, c.byref(g)),",
            "      n.nvmlDeviceSetComputeMode(h, 3))",
        )
        == "0 0 4 4 4"
    )


def run_python(*lines: str) -> str:
    command = [sys.executable, "-S", "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_refuses_to_destroy_an_instance_in_use(install):
    driver, gpu = switched_on(install)
    gi = nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    ci = fill(gi, 1)
    holder = driver.hold(64)
    assert holder.stdout.readline() == "0\n"
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert process.pid == holder.pid
    assert process.usedGpuMemory == 64 << 20
    assert process.gpuInstanceId == nvml.nvmlGpuInstanceGetInfo(gi).id
    assert process.computeInstanceId == 0
    (mig,) = mig_devices(gpu)
    assert nvml.nvmlDeviceGetMemoryInfo(mig).used == 64 << 20
    assert [
        nvml_device_get_compute_running_process.pid
        for nvml_device_get_compute_running_process in nvml.nvmlDeviceGetComputeRunningProcesses(
            mig
        )
    ] == [holder.pid]
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlComputeInstanceDestroy(ci)
    holder.kill()
    holder.wait()
    nvml.nvmlComputeInstanceDestroy(ci)
