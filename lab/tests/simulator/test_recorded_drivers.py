"""The simulated driver beside what real ones answered to the same calls, on the same GPU."""

import json
import os
import tomllib

import pytest

from lab.cluster.paths import LAB, REPOSITORY
from lab.kit.answers.both_drivers import record
from lab.kit.answers.differences import compare, public, text

RECORDED = sorted((LAB / "kit/answers/recorded").glob("*.json"))  # <model>-<driver version>
LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}
ONE_GPU = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "0"}

# Why a difference stays, and the calls that differ so: no more and no fewer.
ACCEPTED = {
    "h200-580.159.04": {
        "NVML's total less the 615 MiB that the driver reserves: a change of the product first": [
            "cuDeviceTotalMem_v2(0)",
            "nvmlDeviceGetConfComputeMemSizeInfo(gpu)",
        ],
        "a capability that the simulator lacks: a program that saw it would use it": [
            f"cuDeviceGetAttribute({number}, 0)"
            for number in (
                96,  # cooperative launches on several devices
                *(107, 112, 121),  # compressed memory, sparse arrays, deferred mappings of arrays
                *(108, 109),  # persisting L2 cache: its size, the window of its policy
                *(110, 116, 117, 118, 124),  # RDMA, with which flushes and order; DMA buffers
                114,  # timeline semaphores
                *(119, 125, 128),  # memory pools, events and fabric memory of other processes
                120,  # clusters of blocks
                127,  # tensor maps
                129,  # pointers to functions that all devices share
                *(141, 145),  # address ranges in memory of the host
            )
        ],
        "the binding gives the version, the driver clears it": [
            f"nvmlDeviceGetGpuInstanceProfileInfo(gpu, {profile}).version"
            for profile in (0, 1, 2, 3, 4, 7, 9)
        ],
        "NVIDIA lists two boards of an H200, 18BE and 18BF; the model has the first": [
            "cuDeviceGetAttribute(140, 0)"
        ],
        "that GPU was passed through to a virtual machine": [
            "nvmlDeviceGetVirtualizationMode(gpu)"
        ],
        "text for NVIDIA's settings dialogue": [
            "nvmlDeviceGetCurrentClockFreqs(gpu)",
            "nvmlDeviceGetPerformanceModes(gpu)",
        ],
        "the board's black box": ["nvmlDeviceGetLastBBXFlushTime(gpu)"],
        "an unknown error, of a GPU that is not confidential": [
            "nvmlDeviceGetConfComputeGpuCertificate(gpu)"
        ],
    }
}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_answers_as_the_real_driver(install, path, tmp_path):
    model, _, version = path.stem.rpartition("-")
    driver = install(model, version=version)
    recorded = json.loads(path.read_text())
    differences = []
    for kind, library in LIBRARIES.items():
        answered, ended = record(
            kind, driver.library(library), 0, tmp_path / kind, {**os.environ, **ONE_GPU}
        )
        assert ended == "to the end"
        compared = compare(kind, answered.answers, recorded[kind])
        assert compared.compared > 100
        assert compared.only_simulated == ()
        differences += compared.differences
    accepted = {call for calls in ACCEPTED[path.stem].values() for call in calls}
    assert [difference for difference in differences if difference.call not in accepted] == []
    assert accepted - {difference.call for difference in differences} == set()


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_keeps_recordings_in_order_and_without_identities(path):
    recorded = json.loads(path.read_text())
    assert path.read_text() == text({kind: public(recorded[kind]) for kind in LIBRARIES})


def test_recordings_are_in_no_package():
    """The lab's wheel has the packages that it lists, Divvy's those of one name."""
    lab, divvy = (
        tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
        for folder in (LAB, REPOSITORY)
    )
    assert not [package for package in lab if package.startswith("lab.kit")]
    assert divvy == {"find": {"include": ["divvy*"]}}
