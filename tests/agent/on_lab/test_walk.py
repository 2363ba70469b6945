"""A random walk of a real node: what its pods hold is never touched, whatever happens to it.

The oracle asks the node's `nvidia-smi`, the API server and the pods themselves, never the agent.
`DIVVY_LAB_WALK=SEED:STEPS` chooses another walk.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.agent.on_lab.test_held import replace_agent
from tests.agent.tenants import NODE, kill_agent, pod, run
from tests.beside import repeating
from tests.deployment import Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600), pytest.mark.usefixtures("original")]
SEED, STEPS = map(int, os.environ.get("DIVVY_LAB_WALK", "7:10").split(":"))
PROFILES = ("whole", "slice-4", "seven", "cern-mix", "sliced-mig", "split")
LABEL = "divvy.gpu/profile"
MAX_TENANTS = 5
PERIOD = 0.2
RUNNING, REFUSED = "running", "refused"


def layout(listed: str) -> dict[str, str]:
    """Return each device of `nvidia-smi -L` and the GPU that it is a part of, itself for a GPU."""
    gpus: dict[str, str] = {}
    gpu = ""
    for line in listed.splitlines():
        match = re.search(r"UUID: ((?:GPU|MIG)-[^)]+)\)", line)
        if match:
            gpu = match[1] if match[1].startswith("GPU-") else gpu
            gpus[match[1]] = gpu
    return gpus


@dataclass(frozen=True)
class Tenant:
    """A pod that runs: its UID, what it requested, and the device that it sees."""

    uid: str
    resource: str
    uuid: str


@dataclass
class Walk:
    """One walk over one node."""

    deployed: Deployment
    namespace: str
    random: Random
    tenants: dict[str, Tenant] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    samples: int = 0
    admitted: int = 0

    def step(self) -> None:
        """Let something happen, and judge what came of it."""
        what = self.random.choices(
            (self.flip, self.admit, self.admit_init, self.end, self.restart_kubelet,
             self.kill_agent, self.replace_agent, self.silence, self.settle),
            (5, 6, 3, 6, 2, 1, 1, 1, 4),
        )[0]  # fmt: skip
        self.steps.append(f"{len(self.steps) + 1} {what.__name__} {what()}")
        self.judge()

    def flip(self) -> str:
        profile = self.random.choice(PROFILES)
        self.deployed.lab.kubectl("label", "node", NODE, f"{LABEL}={profile}", "--overwrite")
        return profile

    def admit(self) -> str:
        return self._admit(init=False)

    def admit_init(self) -> str:
        return self._admit(init=True)

    def _admit(self, *, init: bool) -> str:
        offered = sorted(self.deployed.offered(NODE))
        if not offered or len(self.tenants) == MAX_TENANTS:
            return "nothing"
        name, resource = f"pod-{len(self.steps)}", self.random.choice(offered)
        manifest = pod(name, resource, "nvidia-smi -L; sleep 10000")
        (main,) = manifest["spec"]["containers"]
        if init:
            first = {**main, "name": "prepare", "image": self.deployed.base_image}
            manifest["spec"]["initContainers"] = [first]
            manifest["spec"]["containers"] = [{"name": "main", "command": ["sleep", "10000"]}]
        run(self.deployed, self.namespace, manifest)
        tenant = self._started(name, resource, "prepare" if init else "main")
        if tenant is None:
            self._delete(name)
            return f"{name} {resource}: not admitted"
        self.tenants[name] = tenant
        self.admitted += 1
        return f"{name} {resource} {tenant.uuid}"

    def _started(self, name: str, resource: str, container: str) -> Tenant | None:
        """Return the tenant when it runs; None if it is refused, or waits for a device."""
        lab, where = self.deployed.lab, f"-n={self.namespace}"
        tenants: list[Tenant] = []

        def judged() -> bool:
            seen = lab.get("pod", name, where)
            logs = lab.try_kubectl("logs", name, where, f"-c={container}").stdout
            uuids = [uuid for uuid in layout(logs) if uuid.startswith("MIG-")] or [*layout(logs)]
            if uuids and self._state(seen) == RUNNING:
                tenants.append(Tenant(seen["metadata"]["uid"], resource, uuids[0]))
            return bool(tenants) or self._state(seen) == REFUSED

        try:
            self.deployed.until(judged, 15)
        except AssertionError:
            return None
        return tenants[0] if tenants else None

    @staticmethod
    def _state(seen: dict[str, Any]) -> str:
        status = seen["status"]
        if status.get("phase") == "Failed" and "AdmissionError" in status.get("reason", ""):
            return REFUSED
        statuses = [*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())]
        return (
            RUNNING
            if any(container_status["state"].get("running") for container_status in statuses)
            else "not running"
        )

    def end(self) -> str:
        if not self.tenants:
            return "nobody"
        name = self.random.choice(sorted(self.tenants))
        del self.tenants[name]
        self._delete(name)
        return name

    def _delete(self, name: str) -> None:
        self.deployed.lab.kubectl("delete", "pod", name, f"-n={self.namespace}", "--wait=false")

    def settle(self) -> str:
        """Let the node come to where it wants to be: what hurts most comes after."""
        with suppress(AssertionError):
            self.deployed.until(lambda: self.deployed.status(NODE).get("state") == "Ready", 15)
            self.deployed.until(lambda: bool(self.deployed.offered(NODE)), 5)
        return str(self.deployed.offered(NODE))

    def restart_kubelet(self) -> str:
        self.deployed.lab.machine(NODE).restart("kubelet")
        return ""

    def kill_agent(self) -> str:
        try:
            kill_agent(self.deployed, NODE)
        except subprocess.CalledProcessError:
            # Killed often, its container waits longer and longer for its next start.
            replace_agent(self.deployed)
            return "is in back-off: replaced"
        return ""

    def replace_agent(self) -> str:
        replace_agent(self.deployed)
        return ""

    def silence(self) -> str:
        with self.deployed.lab.silent_api(self.random.choice((3, 8))):
            if self.random.random() < 0.5:
                with suppress(subprocess.CalledProcessError):
                    kill_agent(self.deployed, NODE)
                    return "and the agent killed"
        return ""

    def judge(self) -> None:
        """Require of every tenant that it runs as it did, with a device that is its own."""
        items = self.deployed.lab.get("pods", f"-n={self.namespace}")["items"]
        seen = {pod["metadata"]["name"]: pod for pod in items}
        there = layout(self.deployed.on_node(NODE, "nvidia-smi", "-L"))
        for name, tenant in self.tenants.items():
            now = seen.get(name)
            if now is None or now["metadata"]["uid"] != tenant.uid:
                self.problems.append(f"{name} is gone")
                continue
            statuses = [
                *now["status"].get("containerStatuses", ()),
                *now["status"].get("initContainerStatuses", ()),
            ]
            if self._state(now) != RUNNING or any(
                container_status["restartCount"] for container_status in statuses
            ):
                self.problems.append(f"{name} does not run as it did: {now['status']}")
            if "deletionTimestamp" in now["metadata"]:
                self.problems.append(f"{name} was evicted")
        held = [(name, tenant, there.get(tenant.uuid)) for name, tenant in self.tenants.items()]
        for number, (name, tenant, gpu) in enumerate(held):
            for other_name, other, other_gpu in held[number + 1 :]:
                together = tenant.resource == other.resource and "shared" in tenant.resource
                if tenant.uuid == other.uuid and not together:
                    self.problems.append(f"{name} and {other_name} both have {tenant.uuid}")
                elif gpu == other_gpu and gpu in (tenant.uuid, other.uuid) and not together:
                    self.problems.append(f"{name} and {other_name} meet on {gpu}")
        assert not self.problems, "\n".join((*self.problems, *self.steps))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look at the node all the time: what tenants hold is there, and as it was."""

        def look() -> None:
            # Before the node is asked: who ends meanwhile may lose the device.
            tenants = dict(self.tenants)
            there = layout(self.deployed.on_node(NODE, "nvidia-smi", "-L"))
            self.samples += 1
            for name, tenant in tenants.items():
                if tenant.uuid not in there and name in self.tenants:
                    self.problems.append(f"{tenant.uuid}, held by {name}, is not there")
                if tenant.uuid in [gpu for known, gpu in there.items() if known != gpu]:
                    self.problems.append(f"{tenant.uuid}, held by {name}, was partitioned")

        with repeating(look, PERIOD):
            yield


def test_keeps_what_pods_hold_whatever_happens_to_the_node(deployed: Deployment) -> None:
    before = deployed.offered(NODE)
    with deployed.lab.namespace() as namespace:
        walk = Walk(deployed, namespace, Random(SEED))
        try:
            with walk.watched():
                for _ in range(STEPS):
                    walk.step()
                walk.judge()
        finally:
            deployed.lab.kubectl("label", "node", NODE, f"{LABEL}-")
            print(*walk.steps, f"{walk.samples} looks, {walk.admitted} admitted", sep="\n")
        assert walk.samples > STEPS
        assert walk.admitted
    deployed.until(lambda: deployed.offered(NODE) == before, 90)
    deployed.until(lambda: deployed.status(NODE)["state"] == "Ready", 60)
