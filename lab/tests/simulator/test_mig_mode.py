"""MIG mode: when a change of it comes into force, and what survives the driver."""

import pynvml as nvml
import pytest

from lab.driver_clients.driver_root import OTHER_VERSION
from lab.driver_clients.mig_calls import fill, mig_devices, switched_on

MODES = ("--query-gpu=mig.mode.current,mig.mode.pending", "--format=csv,noheader")

pytestmark = pytest.mark.usefixtures("administrator")


def test_waits_for_users_and_resets_on_ampere(install):
    driver = install("A100-SXM4-40GB")
    holder = driver.hold(16)
    assert holder.stdout.readline() == "0\n"
    text = driver.smi("-mig", "1")
    assert "pending enable state" in text
    assert "In use by another client" in text
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    uuid = nvml.nvmlDeviceGetUUID(gpu)
    assert "could not be reset" in driver.smi("--gpu-reset", rc=19)
    holder.stdin.close()
    holder.wait()
    # Whoever has a handle of the GPU has it open: a monitoring agent is in the way of a reset.
    assert "In use by another client" in driver.smi("--gpu-reset", "-i", uuid, rc=19)
    nvml.nvmlShutdown()
    assert "successfully reset" in driver.smi("--gpu-reset", "-i", uuid)
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [1, 1]


def test_requires_the_reset_on_ampere_in_a_virtual_machine(install):
    driver = install("A100-SXM4-40GB")
    driver.sim("fault", "no-activation", "0")
    assert "pending enable state" in driver.smi("-mig", "1")
    driver.smi("--gpu-reset")
    driver.nvml()
    assert nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(0)) == [1, 1]


def test_changes_at_once_or_not_at_all_on_hopper(install):
    driver = install("H100-SXM5-80GB")
    holder = driver.hold(16)
    assert holder.stdout.readline() == "0\n"
    assert "In use by another client" in driver.smi("-mig", "1", rc=19)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    holder.stdin.close()
    holder.wait()
    nvml.nvmlDeviceSetMigMode(gpu, 1)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]


@pytest.mark.parametrize(
    ("model", "after"), [("A100-SXM4-40GB", [1, 1]), ("H100-SXM5-80GB", [0, 0])]
)
def test_keeps_what_survives_the_driver(install, model, after):
    driver, gpu = switched_on(install, model, keep=True)
    fill(nvml.nvmlDeviceCreateGpuInstance(gpu, 19), 1)
    driver.sim("driver", OTHER_VERSION)
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlDeviceGetMigMode(gpu)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == after
    assert mig_devices(gpu) == []
    # The same over a restart of the node, whose disk keeps the file.
    driver.stop()
    driver.install(model, 1)
    assert driver.smi(*MODES) == ("Enabled, Enabled\n" if after[0] else "Disabled, Disabled\n")


@pytest.mark.parametrize(("mode", "other"), [("Disabled", "Enabled"), ("Enabled", "Disabled")])
def test_boots_without_a_change_that_was_taken_back(install, mode, other):
    driver = install("A100-SXM4-40GB", keep=True)
    driver.smi("-mig", str(int(mode == "Enabled")))
    driver.sim("fault", "no-activation", "0")
    driver.smi("-mig", str(int(other == "Enabled")))
    assert driver.smi(*MODES) == f"{mode}, {other}\n"
    driver.smi("-mig", str(int(mode == "Enabled")))
    assert driver.smi(*MODES) == f"{mode}, {mode}\n"
    driver.stop()
    driver.install("A100-SXM4-40GB", 1)
    assert driver.smi(*MODES) == f"{mode}, {mode}\n"
