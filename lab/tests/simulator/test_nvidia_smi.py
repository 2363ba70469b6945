"""nvidia-smi's output against the shapes that real ones have."""

import re
import xml.etree.ElementTree as ET

import pytest

from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients.driver_root import OTHER_VERSION, VERSION

TRAILER = "Simulated by Divvy: no GPU is behind these figures."
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


@pytest.fixture
def mig(install, request):
    """Two GPUs, the first cut into 3g.20gb and 1g.5gb."""
    request.getfixturevalue("administrator")
    driver = install("A100-SXM4-40GB", 2)
    driver.smi("-mig", "1", "-i", "0")
    driver.smi("mig", "-i", "0", "-cgi", "3g.20gb,19", "-C")
    return driver


def test_lists_gpus_and_mig_devices(mig):
    lines = mig.smi("-L").splitlines()
    assert lines[0] == f"GPU 0: NVIDIA A100-SXM4-40GB (UUID: {gpu_uuid('test', 0)})"
    assert re.fullmatch(rf"  MIG 3g\.20gb     Device  0: \(UUID: MIG-{UUID}\)", lines[1])
    assert re.fullmatch(rf"  MIG 1g\.5gb      Device  1: \(UUID: MIG-{UUID}\)", lines[2])
    assert lines[3].startswith("GPU 1: ")
    assert len(lines) == 4
    assert mig.smi("-L", "-i", "1") == lines[3] + "\n"
    assert mig.smi("-L", "-i", gpu_uuid("test", 1)) == lines[3] + "\n"
    assert mig.smi("-L", "-i", "00000000:0F:00.0") == lines[3] + "\n"
    assert "No devices were found" in mig.smi("-L", "-i", "7", rc=6)


def test_prints_versions(install):
    """As releases from 550 on print them; the DRA driver of NVIDIA looks for the driver by it."""
    assert install("T4").smi("--version").splitlines() == [
        f"NVIDIA-SMI version  : {VERSION}",
        f"NVML version        : {VERSION.rpartition('.')[0]}",
        f"DRIVER version      : {VERSION}",
        "CUDA Version        : 12.4",
    ]


def test_prints_the_table(mig):
    holder = mig.hold(300)
    assert holder.stdout.readline() == "0\n"
    text = mig.smi()
    lines = text.splitlines()
    assert lines[-1] == TRAILER
    assert {len(line) for line in lines[1:-1]} <= {89, 91}
    header = rf"\| NVIDIA-SMI {VERSION} +Driver Version: {VERSION} +CUDA Version: 12\.4 +\|"
    assert re.fullmatch(header, lines[2])
    gpus = re.findall(
        r"^\| +(\d) +NVIDIA A100-SXM4-40GB +On +\| +(\S+) Off \| +(\S+) \|$", text, re.M
    )
    assert gpus == [("0", "00000000:07:00.0", "On"), ("1", "00000000:0F:00.0", "0")]
    usage = r"^\| N/A +30C +P0 +\d+W / +400W \| +(\d+)MiB / +40960MiB \| +(\S+) +Default \|$"
    assert re.findall(usage, text, re.M) == [("640", "N/A"), ("940", "0%")]
    assert re.findall(r"^\|.*\| +(Enabled|Disabled) \|$", text, re.M) == ["Enabled", "Disabled"]
    row = r"^\| +0 +(\d+) +0 +(\d) +\| +0MiB / +(\d+)MiB +\| +(\d+) +0 \| +\d+ +0 +\d+ +0 +0 \|$"
    assert re.findall(row, text, re.M) == [("1", "0", "20096", "42"), ("7", "1", "4864", "14")]
    (process,) = re.findall(r"^\| +1 +N/A +N/A +(\d+) +C +(\S.*\S) +(\d+)MiB \|$", text, re.M)
    assert (process[0], process[2]) == (str(holder.pid), "300")


def test_names_the_kernel_mode_driver_in_the_table_of_newer_drivers(install):
    header = install("T4", version="610.43.02").smi().splitlines()[2]
    versions = r"610\.43\.02 {14}KMD Version: 610\.43\.02 {5}CUDA UMD Version: \S+ +"
    assert re.fullmatch(rf"\| NVIDIA-SMI {versions}\|", header)
    assert len(header) == 91


def test_prints_the_table_of_an_idle_gpu(install):
    text = install().smi()
    assert "|  No running processes found  " in text
    assert "MIG devices" not in text


@pytest.mark.usefixtures("administrator")
def test_prints_that_there_are_no_mig_devices(install):
    driver = install()
    driver.smi("-mig", "1")
    assert "|  No MIG devices found  " in driver.smi()


def test_prints_csv(mig):
    fields = "index,name,uuid,memory.total,memory.used,utilization.gpu,mig.mode.current,power.draw"
    header, first, second = mig.smi(f"--query-gpu={fields}", "--format=csv").splitlines()
    assert header == (
        "index, name, uuid, memory.total [MiB], memory.used [MiB], utilization.gpu [%], "
        "mig.mode.current, power.draw [W]"
    )
    uuid = gpu_uuid("test", 0)
    expected = f"0, NVIDIA A100-SXM4-40GB, {uuid}, 40960 MiB, 0 MiB, [N/A], Enabled, "
    assert first.startswith(expected)
    assert re.search(r", 0 %, Disabled, \d+\.\d\d W$", second)
    bare = mig.smi("--query-gpu=index,memory.total", "--format=csv,noheader,nounits", "-i", "1")
    assert bare == "1, 40960\n"
    assert 'Field "nonsense" is not a valid' in mig.smi(
        "--query-gpu=nonsense", "--format=csv", rc=2
    )
    assert "--format" in mig.smi("--query-gpu=index", rc=2)


def test_prints_csv_of_processes(install):
    driver = install()
    query = ("--query-compute-apps=pid,process_name,used_memory,gpu_uuid", "--format=csv")
    assert driver.smi(*query) == "pid, process_name, used_gpu_memory [MiB], gpu_uuid\n"
    holder = driver.hold(20)
    assert holder.stdout.readline() == "0\n"
    row = driver.smi(*query).splitlines()[1]
    assert re.fullmatch(rf"{holder.pid}, \S*python\S*, 20 MiB, {gpu_uuid('test', 0)}", row)


def test_prints_details(install):
    driver = install(count=2)
    text = driver.smi("-q", "-d", "TEMPERATURE", "-i", "1")
    assert re.search(r"^        GPU Current Temp +: 30 C$", text, re.M)
    assert "Attached GPUs                             : 1" in text
    assert "FB Memory" not in text
    whole = driver.smi("-q")
    for words in ("==NVSMI LOG==", "Product Name", "FB Memory Usage", "ECC Errors", "Simulated"):
        assert words in whole
    assert "Invalid display type" in driver.smi("-q", "-d", "NOTHING", rc=2)


def test_prints_xml(mig):
    log = ET.fromstring(mig.smi("-q", "-x"))
    assert log.tag == "nvidia_smi_log"
    assert log.findtext("driver_version") == VERSION
    assert log.findtext("attached_gpus") == "2"
    first, second = log.findall("gpu")
    assert first.get("id") == "00000000:07:00.0"
    assert first.findtext("mig_mode/current_mig") == "Enabled"
    assert second.findtext("mig_mode/current_mig") == "Disabled"
    devices = first.findall("mig_devices/mig_device")
    assert [device.findtext("fb_memory_usage/total") for device in devices] == [
        "20096 MiB",
        "4864 MiB",
    ]
    assert second.findtext("mig_devices") == "None"
    assert second.findtext("fb_memory_usage/reserved") == "640 MiB"
    assert "Simulated by Divvy" in mig.smi("-q", "-x")


def test_prints_mig_lists(mig):
    placements = mig.smi("mig", "-lgipp", "-i", "1").splitlines()
    assert "GPU  1 Profile ID 19 Placements: {0,1,2,3,4,5,6}:1" in placements
    assert "GPU  1 Profile ID  5 Placement : {0}:4" in placements
    profiles = mig.smi("mig", "-lgip", "-i", "0")
    assert re.search(r"^\| +0 +MIG 1g\.5gb +19 +3/7 +4\.75 +No +14 +0 +0 +\|$", profiles, re.M)
    instances = mig.smi("mig", "-lgi")
    assert re.search(r"^\| +0 +MIG 3g\.20gb +9 +1 +4:4 +\|$", instances, re.M)
    assert len({len(line) for line in instances.splitlines()}) == 1
    computes = mig.smi("mig", "-lci", "-gi", "1")
    assert re.search(r"^\| +0 +1 +MIG 3g\.20gb +2 +0 +0:3 +\|$", computes, re.M)
    parts = mig.smi("mig", "-lcip", "-gi", "1")
    assert re.search(r"^\| +0 +1 +MIG 1c\.3g\.20gb +0 +0/3 +14 ", parts, re.M)
    assert "2*" in parts


@pytest.mark.usefixtures("administrator")
def test_changes_mig_instances(install):
    driver = install()
    assert "No MIG-enabled devices found." in driver.smi("mig", "-cgi", "19", rc=6)
    assert driver.smi("-mig", "1") == "Enabled MIG Mode for GPU 00000000:07:00.0\nAll done.\n"
    lines = driver.smi("mig", "-cgi", "2g.10gb:4", "-C").splitlines()
    assert lines == [
        "Successfully created GPU instance ID  3 on GPU  0 using profile MIG 2g.10gb (ID 14)",
        "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  3 using profile "
        "MIG 2g.10gb (ID  1)",
    ]
    refused = driver.smi("mig", "-cgi", "7g.40gb", rc=23)
    assert refused.endswith("Failed to create GPU instances: Insufficient Resources\n")
    assert "In use by another client" in driver.smi("mig", "-dgi", rc=19)
    assert "Unable to disable MIG Mode" in driver.smi("-mig", "0", rc=19)
    assert driver.smi("mig", "-dci") == (
        "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  3\n"
    )
    assert driver.smi("mig", "-cci", "0,0", "-gi", "3").count("Successfully created compute") == 2
    driver.smi("mig", "-dci", "-gi", "3", "-ci", "0,1")
    assert driver.smi("mig", "-dgi", "-gi", "3") == (
        "Successfully destroyed GPU instance ID  3 from GPU  0\n"
    )
    assert "No GPU instances found" in driver.smi("mig", "-lgi", rc=6)
    assert driver.smi("-mig", "0").startswith("Disabled MIG Mode")


@pytest.mark.usefixtures("administrator")
def test_applies_settings_and_refuses_wrong_options(install):
    driver = install()
    assert "EXCLUSIVE_PROCESS" in driver.smi("-c", "3")
    assert "E. Process" in driver.smi()
    assert "Not Supported" in driver.smi("-c", "1", rc=3)
    for wrong in (["-c", "7"], ["-mig", "2"], ["--nonsense"], ["mig"], ["mig", "-x"], ["-x"]):
        driver.smi(*wrong, rc=2)
    assert "Usage" in driver.smi("-h") or "nvidia-smi" in driver.smi("-h")


@pytest.mark.usefixtures("administrator")
def test_keeps_the_time_slice_until_the_driver_is_reloaded(install):
    """NVIDIA's DRA driver sets it by UUID, the mode of `-c` after it."""
    driver = install("T4", 2)
    uuid = driver.smi("--query-gpu=uuid", "--format=csv,noheader").splitlines()[1]
    listed = ["GPU 00000000:07:00.0: timeslice Default", "GPU 00000000:0F:00.0: timeslice Long"]
    output = driver.smi("compute-policy", "-i", uuid, "--set-timeslice", "3")
    assert output == "Set timeslice to Long for GPU 00000000:0F:00.0.\nAll done.\n"
    assert driver.smi("compute-policy", "-l").splitlines() == listed
    driver.smi("compute-policy", "--set-timeslice=1", "-i", "0")
    assert "0: timeslice Short\n" in driver.smi("compute-policy", "--list")
    for wrong in (["--set-timeslice", "4"], [], ["-l", "--set-timeslice=1"], ["--nonsense"]):
        driver.smi("compute-policy", *wrong, rc=2)
    driver.sim("driver", OTHER_VERSION)
    assert driver.smi("compute-policy", "-l").count("Default") == 2


@pytest.mark.usefixtures("administrator")
def test_reports_a_library_of_another_version(install):
    driver = install()
    driver.sim("driver", OTHER_VERSION)
    library = driver.library("libnvidia-ml.so.1")
    library.unlink()
    library.symlink_to(f"libnvidia-ml.so.{VERSION}")
    assert driver.smi(rc=18) == "Failed to initialize NVML: Driver/library version mismatch\n"
