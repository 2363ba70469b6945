"""What NVML and nvidia-smi tell in a container: its share and its own processes."""

import pytest

from lab.driver_clients.driver_root import eventually
from tests.limiter.tenant import line, tell

QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
PROCESSES = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")
IN_A_PID_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def test_shows_the_share_in_nvidia_smi(tenants, driver):
    tenant, other = tenants(3000), tenants(2000)
    mine = tenant.start("cuda.allocate(1000 * MIB); print('ready', flush=True); input()")
    theirs = other.start("cuda.allocate(500 * MIB); print('ready', flush=True); input()")
    assert [line(mine), line(theirs)] == ["ready", "ready"]
    first, second = tenant.smi(*QUERY).splitlines()
    assert first == "3000, 1000, 2000"
    assert second == driver.smi(*QUERY).splitlines()[1]
    (process,) = tenant.smi(*PROCESSES).splitlines()
    pid, name, used = process.split(", ")
    assert (int(pid), used) == (mine.pid, "1000")
    assert "python" in name
    assert "1000MiB /   3000MiB" in tenant.smi()
    assert driver.smi(*QUERY).startswith("15360, 1500, ")
    mine.kill()
    mine.wait()
    assert tenant.smi(*QUERY).splitlines()[0] == "3000, 0, 3000"
    assert tenant.smi(*PROCESSES) == ""


def test_shows_the_share_in_every_version_of_nvml(tenants):
    script = """
cuda.allocate(100 * MIB)
nvml = c.CDLL(str(Path(sys.argv[1]).with_name('libnvidia-ml.so.1')))
device, count = c.c_void_p(), c.c_uint(0)
nvml.nvmlInit_v2()
print(nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device)))
memory = (c.c_uint64 * 3)()
print(nvml.nvmlDeviceGetMemoryInfo(device, memory), [each // MIB for each in memory])
memory = (c.c_uint64 * 5)(40 | 2 << 24)
print(nvml.nvmlDeviceGetMemoryInfo_v2(device, memory), [each // MIB for each in memory[1:]])
print(nvml.nvmlDeviceGetMemoryInfo(device, None))
for name, size in (('', 16), ('_v2', 24), ('_v3', 24)):
    get = getattr(nvml, 'nvmlDeviceGetComputeRunningProcesses' + name)
    count.value = 0
    short, infos = get(device, c.byref(count), None), (c.c_uint64 * 8)()
    print(short, count.value, get(device, c.byref(count), infos), infos[0] == os.getpid(),
          infos[1] // MIB, get(device, None, infos))
name = c.create_string_buffer(100)
print(nvml.nvmlSystemGetProcessName(os.getpid(), name, 100), b'python' in name.value)
print(nvml.nvmlSystemGetProcessName(999999999, name, 100))
"""
    assert tenants(300).run(script).splitlines() == [
        "0",
        "0 [300, 200, 100]",
        "0 [300, 0, 200, 100]",
        "2",
        *["7 1 0 True 100 2"] * 3,
        "0 True",
        "6",
    ]


def test_shows_no_work_of_other_containers(tenants, driver):
    tenant, other = tenants(1000), tenants(1000)
    theirs = other.start(
        "from lab.driver_clients.sleeper import Sleeper; sleeper = Sleeper(cuda)\n"
        "sleeper.start(60 * 10**9); print('ready', flush=True); input()"
    )
    assert line(theirs) == "ready"
    script = """
nvml = c.CDLL(sys.argv[2] or str(Path(sys.argv[1]).with_name('libnvidia-ml.so.1')))
device, room = c.c_void_p(), (c.c_uint64 * 64)()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device))
for kind in ('', '_v2', '_v3'):
    count = c.c_uint(8)
    get = getattr(nvml, 'nvmlDeviceGetGraphicsRunningProcesses' + kind)
    print(get(device, c.byref(count), room), count.value)
count = c.c_uint(8)
print(nvml.nvmlDeviceGetProcessUtilization(device, room, c.byref(count), c.c_uint64(0)),
      count.value)
if not sys.argv[2]:
    samples = (c.c_uint64 * 3)(1 << 24 | 24 | 8 << 32)
    print(nvml.nvmlDeviceGetProcessesUtilizationInfo(device, samples), samples[0] >> 32)
    count = c.c_uint(8)
    print(nvml.nvmlDeviceGetAccountingPids(device, c.byref(count), room), count.value)
    print(nvml.nvmlDeviceGetAccountingStats(device, 1, room))
    for kind in ('Encoder', 'FBC'):
        count = c.c_uint(8)
        get = getattr(nvml, f'nvmlDeviceGet{kind}Sessions')
        print(get(device, c.byref(count), room), count.value)
    details = (c.c_uint * 6)(1 << 24 | 24, 0, 8)
    print(nvml.nvmlDeviceGetRunningProcessDetailList(device, details), details[2])
"""
    driver_library = str(driver.library("libnvidia-ml.so.1"))

    def listed(library):
        return tenant.run(script, library, context=False).splitlines()

    assert eventually(lambda: listed(driver_library) == [*["0 0"] * 3, "0 1"])
    assert listed("") == [*["0 0"] * 3, "6 0", "6 0", "0 0", "6", *["0 0"] * 3]
    theirs.kill()
    theirs.wait()


def test_lists_no_process_of_another_pid_namespace_but_counts_its_memory(tenants):
    """As of two pods with one claim, whose processes may have the same number."""
    tenant = tenants(3000)
    script = """
cuda.allocate(int(sys.argv[2]) * MIB)
print('ready', flush=True); input()
nvml = c.CDLL(str(Path(sys.argv[1]).with_name('libnvidia-ml.so.1')))
device, count, infos = c.c_void_p(), c.c_uint(8), (c.c_uint64 * 24)()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device))
result = nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, c.byref(count), infos)
processes = [[infos[3 * at], infos[3 * at + 1] // MIB] for at in range(count.value)]
print(result, processes, flush=True); input()
"""
    mine = tenant.start(script, "900")
    theirs = tenant.start(script, "2000", within=IN_A_PID_NAMESPACE)
    assert [line(mine), line(theirs)] == ["ready", "ready"]
    tell(mine)
    tell(theirs)
    assert line(mine) == f"0 [[{mine.pid}, 900]]"
    assert line(theirs) == "0 [[1, 2000]]"
    assert tenant.smi(*QUERY).splitlines()[0] == "3000, 2900, 100"


def test_lists_a_process_on_the_gpus_that_it_uses(tenants):
    tenant = tenants(1000, 1000)
    script = """
cuda.init().context(int(sys.argv[2]))
cuda.allocate(int(sys.argv[3]) * MIB)
print('ready', flush=True); input()
"""
    first, second = (
        tenant.start(script, ordinal, mib, context=False)
        for ordinal, mib in (("0", "100"), ("1", "200"))
    )
    idle = tenant.start("cuda.init(); print('ready', flush=True); input()", context=False)
    assert [line(process) for process in (first, second, idle)] == ["ready"] * 3
    query = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    assert tenant.smi("-i", "0", *query) == f"{first.pid}, 100\n"
    assert tenant.smi("-i", "1", *query) == f"{second.pid}, 200\n"


@pytest.mark.parametrize("broken", ["limits", "account"])
def test_shows_what_the_driver_does_in_nvml_without_its_files(tenants, broken):
    tenant = tenants(3000)
    (tenant.share / broken).write_text("")
    assert tenant.smi(*QUERY).splitlines()[0].startswith("15360, ")
