"""What a container holds is never touched: real kubelets, an agent and an API server that go."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.agent.tenants import NODE, POOL, SHARED, devices, kill_agent, pod, run
from tests.beside import repeating
from tests.deployment import NAMESPACE, Deployment

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400), pytest.mark.usefixtures("original")]
MIG = "nvidia.com/mig-1g.5gb"
PERIOD = 0.2
# An answer to Allocate counts for 10 s by itself.
REMEMBERED = 11.0


class Tenant:
    """A pod on a MIG device, as it sees it, as the node has it and as the status names it."""

    def __init__(self, deployed: Deployment, namespace: str, container: str) -> None:
        self.deployed = deployed
        self.namespace = namespace
        self.uid = str(self.pod["metadata"]["uid"])
        # The kubelet lists no init containers: the agent knows them from its checkpoint alone.
        by_uid = f"container {container} of the pod with UID {self.uid}"
        self.name = f"{namespace}/tenant" if container == "main" else by_uid
        self._exec = ("exec", "tenant", f"-n={namespace}", f"-c={container}", "--")
        (self.uuid,) = re.findall(r"UUID: (MIG-[^)]+)\)", self.look())

    @property
    def pod(self) -> dict[str, Any]:
        """Return the pod as the API server has it."""
        tenant: dict[str, Any] = self.deployed.lab.get("pod", "tenant", f"-n={self.namespace}")
        return tenant

    def look(self) -> str:
        """Run `nvidia-smi -L` in the pod; "" while its kubelet cannot be reached."""
        return self.deployed.lab.try_kubectl(*self._exec, "nvidia-smi", "-L").stdout

    def is_waited_for(self) -> bool:
        """Tell whether the status says Waiting and names the pod."""
        status = self.deployed.status(NODE)
        return status["state"] == "Waiting" and f"held by {self.name}" in status["reason"]

    def keeps_its_device(self) -> None:
        """Require of a node that is up again that the pod has its device and is waited for."""
        self.deployed.until(lambda: self.uuid in self.look(), 60)
        self.deployed.until(self.is_waited_for, 60)


@contextmanager
def kept(deployed: Deployment, uuid: str) -> Iterator[None]:
    """Require that a MIG device is on the node all the time, whatever is done to the node."""
    lists: list[str] = []
    with repeating(lambda: lists.append(deployed.on_node(NODE, "nvidia-smi", "-L")), PERIOD):
        yield
    gone = [number for number, listed in enumerate(lists) if uuid not in listed]
    assert lists
    assert not gone, f"{uuid} is missing in {len(gone)} of {len(lists)} lists, first in {gone[0]}"


@contextmanager
def waiting_change(
    deployed: Deployment, manifest: dict[str, Any], container: str
) -> Iterator[Tenant]:
    """Give a pod on a MIG device that a change of profile waits for; the change comes at its end.

    It is left alone for longer than the agent remembers its own answers to the kubelet.
    """
    with deployed.lab.namespace() as namespace:
        run(deployed, namespace, manifest)

        def started() -> bool:
            status = deployed.lab.get("pod", "tenant", f"-n={namespace}")["status"]
            states = (
                *status.get("containerStatuses", ()),
                *status.get("initContainerStatuses", ()),
            )
            return any(
                state["name"] == container and state["state"].get("running") for state in states
            )

        deployed.until(started)
        allocated = time.monotonic()
        tenant = Tenant(deployed, namespace, container)
        with kept(deployed, tenant.uuid):
            deployed.set_profile(POOL, "slice-4")
            deployed.up()
            deployed.until(lambda: deployed.offered(NODE) == {SHARED: 12})
            yield tenant
            time.sleep(max(allocated + REMEMBERED - time.monotonic(), 0))
            tenant.keeps_its_device()
        deployed.lab.kubectl("delete", "pod", "tenant", f"-n={namespace}", "--wait=false")
        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 16}, 40)
        assert deployed.status(NODE)["state"] == "Ready"
        assert tenant.uuid not in deployed.on_node(NODE, "nvidia-smi", "-L")


def replace_agent(deployed: Deployment) -> None:
    """Delete the node's agent, as an upgrade does, and wait until the next one is at work."""
    metadata = deployed.agent(NODE)["metadata"]
    deployed.lab.kubectl("delete", "pod", metadata["name"], f"-n={NAMESPACE}", "--wait=true")
    deployed.until(lambda: is_ready(deployed), 60)


def is_ready(deployed: Deployment) -> bool:
    try:
        conditions = deployed.agent(NODE)["status"].get("conditions", ())
    except AssertionError:
        return False
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def test_keeps_the_device_of_an_idle_notebook_over_any_restart(deployed: Deployment) -> None:
    with waiting_change(deployed, pod("tenant", MIG), "main") as tenant:
        tenant.keeps_its_device()

        def disturb(times: int, what: Callable[[], None]) -> None:
            for _ in range(times):
                what()
                tenant.keeps_its_device()

        machine = deployed.lab.machine(NODE)
        disturb(10, lambda: machine.restart("kubelet"))
        disturb(4, lambda: replace_agent(deployed))
        with deployed.lab.silent_api():
            kill_agent(deployed, NODE)
            deployed.until(lambda: not devices(deployed, NODE)[1])
            deployed.until(lambda: bool(devices(deployed, NODE)[1]), 60)
        tenant.keeps_its_device()
        assert tenant.pod["metadata"]["uid"] == tenant.uid
        assert tenant.pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_keeps_the_device_of_a_running_init_container(deployed: Deployment) -> None:
    manifest = pod("tenant", MIG)
    (main,) = manifest["spec"]["containers"]
    manifest["spec"]["initContainers"] = [{**main, "name": "prepare", "image": deployed.base_image}]
    manifest["spec"]["containers"] = [{"name": "main", "command": ["sleep", "1000"]}]
    with waiting_change(deployed, manifest, "prepare") as tenant:
        tenant.keeps_its_device()
        assert tenant.pod["status"]["phase"] == "Pending"


LOSE_ALL = (
    "pkill -KILL -f '^/usr/bin/python3 -m divvy.agent$'; pkill -KILL -x kubelet; "
    "rm -f /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
)


def test_keeps_devices_when_agent_and_kubelet_end_together(deployed: Deployment) -> None:
    """The kubelet's checkpoint is lost; no change is pending, and one comes later."""
    lab = deployed.lab
    with lab.namespace() as namespace:
        run(deployed, namespace, pod("tenant", MIG))
        lab.kubectl("wait", "--for=condition=Ready", "pod/tenant", f"-n={namespace}")
        tenant = Tenant(deployed, namespace, "main")
        time.sleep(REMEMBERED)
        with kept(deployed, tenant.uuid):
            deployed.on_node(NODE, "sh", "-c", LOSE_ALL)
            forgotten = f"the kubelet has forgotten that {tenant.name} hold"
            deployed.until(lambda: forgotten in deployed.status(NODE)["reason"], 120)
            assert deployed.status(NODE)["state"] == "Degraded"
            # To the kubelet all four are free.
            run(deployed, namespace, pod("next", MIG))
            lab.kubectl("wait", "--for=condition=Ready", "pod/next", f"-n={namespace}")
            seen = lab.kubectl("exec", "next", f"-n={namespace}", "--", "nvidia-smi", "-L")
            assert "UUID: MIG-" in seen
            assert tenant.uuid not in seen
            lab.kubectl("delete", "pod", "next", f"-n={namespace}", "--wait=true")
            deployed.set_profile(POOL, "slice-4")
            deployed.up()
            deployed.until(lambda: deployed.offered(NODE) == {SHARED: 12}, 60)
            tenant.keeps_its_device()
            assert tenant.pod["status"]["containerStatuses"][0]["restartCount"] == 0
        lab.kubectl("delete", "pod", "tenant", f"-n={namespace}", "--wait=false")
        deployed.until(lambda: deployed.offered(NODE) == {SHARED: 16}, 60)
