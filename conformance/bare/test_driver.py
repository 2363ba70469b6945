"""Checks of this host's driver as the agent reads it: GPUs, labels, CDI, events."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost, CommandResult
from conformance.bare.injection import inject
from conformance.bare.kit import Kit
from conformance.check import BARE, check
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import Health, HealthRules
from divvy.agent.gpu.labels import feature_labels, sanitised
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.nvml.process import Xid
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model import gpu_resource, model_of_product
from divvy.model.stack import IGNORED_XIDS

# Without these no program computes; a driver that lacks one is installed in part.
_NEEDED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "nvidia-smi")
_NODES = ("nvidiactl", "nvidia-uvm")
_EVENT_SECONDS = 15.0
_MIG = {None: "not there", False: "off", True: "on"}


@check(
    "BARE-02",
    "discovery finds what nvidia-smi lists, as the data sheet has it",
    "MUST",
    BARE,
    "its evidence names what differs",
)
@pytest.mark.limit(30)
def test_discovery_finds_what_nvidia_smi_lists(
    host: BareHost, discovered: Snapshot, findings: Findings
) -> None:
    listed = re.findall(r"UUID: (\S+?)\)", host.run("nvidia-smi -L").log)
    seen = [
        uuid
        for gpu in discovered.gpus
        for uuid in (gpu.uuid, *(instance.uuid for instance in gpu.instances if instance.uuid))
    ]
    findings.equal("GPUs and MIG devices", len(listed), len(seen))
    findings.equal(
        "UUIDs that only one of the two lists", "none", sorted({*seen} ^ {*listed}) or "none"
    )
    findings.equal("driver", host.driver, discovered.driver_version)
    findings.equal("GPUs that do not answer", "none", list(discovered.unreadable) or "none")
    findings.equal("simulated", host.simulated, discovered.simulated)
    findings.tell("CUDA", ".".join(map(str, discovered.cuda_version)))
    for gpu in discovered.gpus:
        model = model_of_product(gpu.product, gpu.memory_mib)
        known = "not in Divvy's data" if model is None else f"known as {model.name}"
        capability = ".".join(map(str, gpu.compute_capability))
        findings.tell(
            f"GPU {gpu.index}",
            f"{gpu.product}, {gpu.memory_mib} MiB, compute capability {capability}, "
            f"brand {gpu.brand}, NUMA node {gpu.numa}, MIG {_MIG[gpu.mig_mode]}; {known}",
        )
        if model is not None:
            findings.equal(
                f"compute capability of GPU {gpu.index}",
                model.compute_capability,
                gpu.compute_capability,
            )
    if discovered.links:
        scores = sorted(score for _, score in discovered.links.items())
        findings.tell("scores of the links between GPUs", scores)
    findings.judge()


@check(
    "BARE-07",
    "labels say what nvidia-smi -q says",
    "MUST",
    BARE,
    "its evidence has each label beside nvidia-smi's word",
)
@pytest.mark.limit(30)
def test_labels_describe_the_gpus(host: BareHost, discovered: Snapshot, findings: Findings) -> None:
    devices = tuple(Device(gpu.uuid, gpu.uuid, gpu.uuid) for gpu in discovered.gpus)
    whole = Resource(gpu_resource(), devices, "gpu")
    labels = feature_labels(discovered, (whole,), None)
    smi_labels = _smi_labels(host.run("nvidia-smi -q -x"))
    capability = host.run("nvidia-smi --query-gpu=compute_cap --format=csv,noheader").log.split()[0]
    smi_labels["nvidia.com/gpu.compute.major"], smi_labels["nvidia.com/gpu.compute.minor"] = (
        capability.split(".")
    )
    for name, value in labels.items():
        if name in smi_labels:
            findings.equal(name, smi_labels[name], value)
        else:
            findings.tell(f"{name}, which nvidia-smi does not tell", value)
    findings.judge()


def _smi_labels(answer: CommandResult) -> dict[str, str]:
    """Return what nvidia-smi -q -x says, as the labels that it would make."""
    assert answer.code == 0, f"nvidia-smi -q -x: {answer}"
    # The document has a DTD, which is not there; nothing of it is needed.
    log = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", answer.log))
    gpu = log.find("gpu")
    assert gpu is not None, "nvidia-smi -q -x lists no GPU"
    versions = {"driver_version": "cuda.driver-version", "cuda_version": "cuda.runtime-version"}
    answers = {
        "gpu.count": log.findtext("attached_gpus", ""),
        "gpu.product": sanitised(gpu.findtext("product_name", "")),
        "gpu.memory": gpu.findtext("fb_memory_usage/total", "").removesuffix(" MiB"),
        "gpu.family": gpu.findtext("product_architecture", "").lower().replace(" ", "-"),
        "mig.capable": str("N/A" not in gpu.findtext("mig_mode/current_mig", "N/A")).lower(),
        # A driver may add that the field has another name now.
        **{
            f"{label}.full": log.findtext(field, "").partition(" ")[0]
            for field, label in versions.items()
        },
    }
    return {f"nvidia.com/{name}": value for name, value in answers.items() if value}


@check(
    "BARE-08",
    "the agent hears of a program that breaks, and the GPU stays of use",
    "MUST",
    BARE,
    "see the kernel's log for the XID; some drivers tell no events in containers",
)
@pytest.mark.exclusive
def test_the_agent_hears_of_a_broken_program(
    host: BareHost, root: Path, workloads: str, idle: Gpu, findings: Findings
) -> None:
    def run(program: str) -> CommandResult:
        return host.end(host.start(Path(workloads, program), device=idle.uuid))

    async def watched() -> None:
        heard: list[tuple[float, Xid]] = []
        arrived = asyncio.Event()
        health = HealthWatch(Health(), lambda: None)
        health.rules = HealthRules(frozenset(IGNORED_XIDS))

        def hear(xid: Xid) -> None:
            heard.append((time.monotonic(), xid))
            arrived.set()
            health.on_xid(xid)

        driver = Driver(root, (), lambda: None, on_xid=hear, on_scan=health.on_scan)
        try:
            await driver.start()
            await driver.rescan()
            broken = await asyncio.to_thread(run, "bad-access")
            ended = time.monotonic()
            findings.holds(
                "a program that writes where nothing is",
                broken.code == 0,
                "ended by the driver with an illegal address",
                broken.log,
            )
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EVENT_SECONDS):
                    await arrived.wait()
            own = [xid for _, xid in heard if xid.uuid == idle.uuid]
            numbers = ", ".join(f"XID {xid.number}" for xid in own) or "no event"
            findings.holds("the event of it that the agent hears", own, "one of this GPU", numbers)
            findings.equal("events of other GPUs", 0, len(heard) - len(own))
            if heard:
                findings.tell("heard in seconds after the program's end", heard[0][0] - ended)
            await driver.rescan()
            # A program's own mistakes are among the XIDs that are ignored unless told otherwise.
            faults = [fault.reason for fault in health.health.faults.values()]
            findings.equal("faults that the agent then sees", "none", faults or "none")
            after = await asyncio.to_thread(run, "cuda-vector-add")
            passed = after.code == 0 and "Test PASSED" in after.log
            words = "Test PASSED" if passed else after
            findings.holds("cuda-vector-add afterwards", passed, "Test PASSED", words)
        finally:
            await driver.stop()

    asyncio.run(watched())
    findings.judge()


@check(
    "BARE-09",
    "the CDI specification names files that exist",
    "MUST",
    BARE,
    "its evidence names the files: a driver that lacks one is installed in part",
)
@pytest.mark.kit
def test_the_cdi_specification_names_files_that_exist(
    host: BareHost, root: Path, kit: Kit, tmp_path: Path, findings: Findings
) -> None:
    injected = inject(kit, root, tmp_path, "")
    findings.equal("the hook is installed", "yes", injected.injection.problem or "yes")
    findings.equal("the limiter is installed", "yes", injected.injection.limiter_problem or "yes")
    uuids = {gpu.uuid for gpu in injected.snapshot.gpus}
    for name, spec in (("plain", injected.spec), ("limited", injected.limited)):
        missing = [path for path in _mounts(spec) if not Path(path).exists()]
        missing += [path for path in _nodes(spec) if not _is_device(path)]
        findings.equal(f"{name}: what it names and is not there", "none", missing or "none")
        described = {device["name"] for device in spec["devices"]}
        findings.equal(f"{name}: GPUs without an entry", 0, len(uuids - described))
        hooks = [hook["path"] for hook in spec["containerEdits"]["hooks"]]
        runs = hooks and all(os.access(path, os.X_OK) for path in hooks)
        words = f"{len(hooks)}, {'can' if runs else 'cannot'} be run"
        findings.holds(f"{name}: its hook", runs, "one that can be run", words)
    common = injected.spec["containerEdits"]["mounts"]
    files = sorted({PurePosixPath(mount["containerPath"]).name for mount in common})
    nodes = sorted({PurePosixPath(node).name for node in _nodes(injected.spec)})
    missing = [name for name in _NEEDED if name not in files]
    missing += [name for name in _NODES if name not in nodes]
    # The simulated driver compiles PTX itself.
    missing = [name for name in missing if not (host.simulated and "ptxjit" in name)]
    what = "of what every driver has, not given to containers"
    findings.equal(what, "none", missing or "none")
    findings.tell("device nodes", nodes)
    findings.tell("files", files)
    findings.judge()


def _edits(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec["containerEdits"]
    for device in spec["devices"]:
        yield device["containerEdits"]


def _mounts(spec: dict[str, Any]) -> Iterator[str]:
    for edits in _edits(spec):
        yield from (mount["hostPath"] for mount in edits["mounts"])


def _nodes(spec: dict[str, Any]) -> Iterator[str]:
    for edits in _edits(spec):
        yield from (node["hostPath"] for node in edits["deviceNodes"])


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        return False
