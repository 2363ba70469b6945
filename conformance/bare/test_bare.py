"""One host: its driver, and the workloads as plain processes on every device."""

from __future__ import annotations

import re

import pytest

from conformance.bare.host import BareHost, CommandResult, Device
from conformance.check import BARE, check
from conformance.evidence import Evidence
from conformance.load.overcommit import granted_mib, least_granted
from conformance.load.share_limit import REFUSED
from conformance.observe.probes import device_mib

MAX_DEVIATION = 0.02
_BURN = "gpu-burn -m 64 -stts 1 3"


def _on(host: BareHost, device: Device, workloads: str, command: str) -> CommandResult:
    users = host.users(device)
    if users:
        pytest.skip(f"the GPU is used by {users}")
    return host.run(f"CUDA_VISIBLE_DEVICES={device.uuid} {workloads}/{command}")


@check(
    "BARE-01",
    "the driver's parts are of one version",
    "MUST",
    BARE,
    "after an update of the driver, restart the machine or reload the kernel module",
    cncf=("driver_runtime_management",),
)
def test_the_driver_is_of_one_version(host: BareHost, evidence: Evidence) -> None:
    evidence.command = "nvidia-smi --query-gpu=driver_version; /proc/driver/nvidia/version"
    smi = host.run("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
    own = f"{host.root.rstrip('/')}/proc/driver/nvidia/version"
    kernel = host.run(f"cat {own} || cat /proc/driver/nvidia/version")
    cuda = host.run(f"readlink -f {host.folder}/libcuda.so.1")
    for result in (smi, kernel, cuda):
        evidence.add(result.log)
    version = re.search(r"\d+\.\d+(\.\d+)?", kernel.log)
    loaded = version.group() if version else "unknown"
    wanted = host.expected_driver or loaded
    library = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)?)$", cuda.log.strip())
    versions = sorted(set(smi.log.split())) if smi.code == 0 else [str(smi)]
    evidence.require(
        f"kernel module {wanted}, nvidia-smi {wanted}, libcuda {wanted}",
        f"kernel module {loaded}, nvidia-smi {', '.join(versions)}, "
        f"libcuda {library.group(1) if library else 'unknown'}",
    )


@check(
    "BARE-03",
    "cuda-vector-add passes on every device",
    "MUST",
    BARE,
    "its log has the driver's error name",
)
def test_vector_add_passes(
    host: BareHost, workloads: str, device: Device, evidence: Evidence
) -> None:
    evidence.command = "cuda-vector-add"
    ran = _on(host, device, workloads, "cuda-vector-add")
    evidence.add(ran.log)
    own = f"UUID: {device.uuid})" in ran.log
    evidence.require_that(
        ran.code == 0 and "Test PASSED" in ran.log and own,
        f"exit code 0, `Test PASSED`, on {device.uuid}",
        ran if own else f"{ran}, on another device",
    )


@check(
    "BARE-04",
    "a device's memory is that of its kind",
    "MUST",
    BARE,
    "the figures come from the model's data sheet; drivers differ by a few MiB",
)
def test_memory_is_that_of_its_kind(
    host: BareHost, workloads: str, device: Device, evidence: Evidence
) -> None:
    if device.memory_mib is None:
        pytest.skip(f"{device.product} is not a model that Divvy knows")
    evidence.command = "mem-hog --mib 1"
    ran = _on(host, device, workloads, "mem-hog --mib 1")
    evidence.add(ran.log)
    mib, known = device_mib(ran.log), device.memory_mib
    close = mib is not None and abs(mib - known) <= known * MAX_DEVIATION
    seen = ran if mib is None else f"{mib} MiB"
    evidence.require_that(close, f"{known} MiB within 2 %", seen)


@check(
    "BARE-05",
    "gpu-burn computes without an error on every device",
    "MUST",
    BARE,
    "a GPU that computes wrongly must be taken out of service",
)
@pytest.mark.exclusive
def test_gpu_burn_is_ok(host: BareHost, workloads: str, device: Device, evidence: Evidence) -> None:
    evidence.command = _BURN
    ran = _on(host, device, workloads, _BURN)
    evidence.add(ran.log.replace("\r", "\n"))
    good = ran.code == 0 and re.search(r"GPU 0: OK", ran.log)
    evidence.require_that(good, "exit code 0, `GPU 0: OK`", ran)


@check(
    "BARE-06",
    "a MIG device refuses memory beyond its slice",
    "MUST",
    BARE,
    "compare the MIG device's memory in nvidia-smi",
)
@pytest.mark.exclusive
def test_a_mig_device_refuses_more_than_its_slice(
    host: BareHost, workloads: str, mig_device: Device, evidence: Evidence
) -> None:
    if mig_device.memory_mib is None:
        pytest.skip(f"{mig_device.product} is not a model that Divvy knows")
    command = f"mem-hog --mib {int(mig_device.memory_mib * 1.1)} --chunk 256"
    evidence.command = command
    ran = _on(host, mig_device, workloads, command)
    evidence.add(ran.log)
    least_mib = least_granted(mig_device.memory_mib)
    evidence.require_that(
        ran.code == REFUSED and granted_mib(ran.log) >= least_mib,
        f"exit code {REFUSED} (out of memory), at least {least_mib} MiB allocated",
        ran,
    )
