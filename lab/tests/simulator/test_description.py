"""The flat file: rendered from the models, and refused with line and reason when wrong."""

import subprocess
from pathlib import Path

import pytest

from divvy.model.gpu_models import gpu_model, gpu_models
from lab.cluster.flat_file import driver_description, gpu_uuid

A100 = gpu_model("A100-SXM4-40GB")
SOUND = driver_description("node", "550.163.01", [A100] * 2)


def started(binaries: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    description = folder / "gpus.conf"
    description.write_text(text)
    command = [str(binaries / "divvy-simd"), "--root", str(folder), "--foreground"]
    return subprocess.run(
        [*command, "--description", str(description)],
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )


@pytest.mark.parametrize("name", sorted(gpu_models()))
def test_reads_every_model(install, name):
    driver = install(name, 4)
    model = gpu_model(name)
    assert driver.sim("show").count(model.product) == 4
    used, total = (
        driver.smi("--query-gpu=memory.used,memory.total", "--format=csv,noheader")
        .split("\n")[0]
        .split(", ")
    )
    shown = ("0 MiB", f"{model.memory_mib} MiB")
    # As of a DGX Spark, whose table has "Not Supported" there.
    assert (used, total) == (("[N/A]", "[N/A]") if model.memory_of_system else shown)
    assert ("Not Supported" in driver.smi()) is model.memory_of_system


def test_derives_the_same_gpus_from_the_same_name():
    assert driver_description("node", "550.163.01", [A100] * 2) == SOUND
    assert gpu_uuid("node", 0) != gpu_uuid("node", 1) != gpu_uuid("other", 1)
    assert gpu_uuid("node", 0) in SOUND


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("driver 550.163.01", "driver", "names no driver"),
        ("node node", "node node\nknot x", ":2: knot is unknown before the first gpu"),
        ("memory-mib 40960", "memory-mib many", "many is no number"),
        ("sms 108", "sms -1", "-1 is no number"),
        ("sms 108", "smz 108", "smz is unknown in a gpu"),
        ("architecture ampere", "architecture copper", "copper is unknown; known: volta"),
        ("bus 00000000:07:00.0", "bus 7", "not of the form 00000000:07:00.0"),
        ("links 1,", "links 7,", "link 0 goes to no other GPU"),
        ("compute-capability 8.0", "compute-capability x", "not of the form 8.0"),
        (" 4864 14 7 1 0 0 0 0 0", " 4864 14 7 1", "has 15 fields, not 10"),
        ("19 0 1 1 0,1,2,3,4,5,6", "19 0 0 1 0,1,2,3,4,5,6", "at least one slice"),
        ("product NVIDIA A100-SXM4-40GB", "product " + "x" * 96, "longer than 95"),
    ],
)
def test_reports_mistakes_with_their_line(binaries, tmp_path, before, after, reason):
    assert before in SOUND
    done = started(binaries, tmp_path, SOUND.replace(before, after, 1))
    assert done.returncode == 1
    assert f"{tmp_path / 'gpus.conf'}:" in done.stderr
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_refuses_a_missing_file_and_wrong_options(binaries, tmp_path):
    program = str(binaries / "divvy-simd")
    for options, code in (
        ([], 2),
        (["--root", str(tmp_path)], 2),
        (["--root", str(tmp_path / "none"), "--description", "x"], 1),
        (["--root", str(tmp_path), "--description", str(tmp_path / "none")], 1),
    ):
        done = subprocess.run([program, *options], capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert done.stderr
