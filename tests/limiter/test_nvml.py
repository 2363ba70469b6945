"""What NVML and nvidia-smi tell in a container: its share and its own processes."""

import pytest

from tests.limiter.tenant import line

QUERY = ("--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
PROCESSES = ("--query-compute-apps=pid,process_name,used_memory", "--format=csv,noheader,nounits")


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


@pytest.mark.parametrize("broken", ["limits", "account"])
def test_shows_what_the_driver_does_in_nvml_without_its_files(tenants, broken):
    tenant = tenants(3000)
    (tenant.share / broken).write_text("")
    assert tenant.smi(*QUERY).splitlines()[0].startswith("15360, ")
