"""Kueue on the lab, with what `divvy plan -o kueue` writes: quota in MiB, by team.

Real Kueue, API server, scheduler, kubelets and agents; the GPUs are simulated. Shares are those of
the pool ``sizes``, MIG devices of ``experiments``, the device plugin's GPUs of ``research``.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from divvy.model.quantities import parse_quantity
from lab.cluster.paths import REPOSITORY
from tests.api_reader import ApiReader
from tests.deployment import Deployment
from tests.kueue.running_kueue import MANAGED, refusal, running_kueue

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
SHARES, MIG, GPUS = "divvy.gpu/share-memory", "divvy.gpu/mig-memory", "nvidia.com/gpu"
POOLS = {SHARES: "sizes", MIG: "experiments", GPUS: "research"}
QUEUE = {"kueue.x-k8s.io/queue-name": "gpus"}
WORKLOADS = 200
MIB = 1 << 20


@pytest.fixture(scope="module")
def claims(deployed: Deployment) -> Iterator[Deployment]:
    """Deploy the lab's pools with claims, and whole GPUs from the device plugin."""
    with deployed.claims():
        deployed.set_profile("research", "whole")
        deployed.up()
        yield deployed


@dataclass(frozen=True)
class Kueue:
    """Kueue as `divvy plan` configures it; ``queue`` is the ClusterQueue that it writes."""

    claims: Deployment
    api: ApiReader
    queue: Mapping[str, Any]


@pytest.fixture(scope="module")
def kueue(claims: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kueue]:
    """Run it."""
    documents = list(yaml.safe_load_all(claims.divvy("plan", "--stack=lab", "-o", "kueue")))
    configuration, *flavors, queue = documents
    with running_kueue(claims.lab, configuration, tmp_path_factory.mktemp("kueue")) as api:
        claims.lab.apply(*flavors)
        yield Kueue(claims, api, queue)


@dataclass(frozen=True)
class Team:
    """A namespace whose Jobs and pods wait in a ClusterQueue of its own."""

    kueue: Kueue
    namespace: str

    @property
    def claims(self) -> Deployment:
        """Return what serves its claims."""
        return self.kueue.claims

    def charged(self) -> Counter[str]:
        """Return what the ClusterQueue has in use, by resource: bytes, or numbers of devices."""
        queue = self.kueue.api.get("clusterqueue", self.namespace)
        return Counter(
            {
                resource["name"]: int(parse_quantity(resource["total"]))
                for flavor in queue.get("status", {}).get("flavorsUsage", ())
                for resource in flavor["resources"]
                if resource["total"] != "0"
            }
        )

    def used(self) -> Counter[str]:
        """Return what its pods have been given, from claims, slices and bindings."""
        lab, place = self.claims.lab, f"-n={self.namespace}"
        devices = {
            device["name"]: device
            for item in lab.get("resourceslices")["items"]
            for device in item["spec"].get("devices", ())
        }
        taken: Counter[str] = Counter()
        for claim in lab.get("resourceclaims", place)["items"]:
            allocation = claim.get("status", {}).get("allocation", {}).get("devices", {})
            for result in allocation.get("results", ()):
                if "consumedCapacity" in result:
                    taken[SHARES] += int(parse_quantity(result["consumedCapacity"]["memory"]))
                else:
                    (consumed,) = devices[result["device"]]["consumesCounters"]
                    taken[MIG] += int(parse_quantity(consumed["counters"]["memory"]["value"]))
        for pod in self.pods():
            limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
            if pod["spec"].get("nodeName") and GPUS in limits:
                taken[GPUS] += int(limits[GPUS])
        return taken

    def shown(self) -> int:
        """Return the MiB that `divvy top` shows of its shares and MIG devices."""
        arguments = ("top", "--stack=lab", "-o", "json", "-n", self.namespace)
        return sum(
            holder["memoryLimitMiB"]
            for node in json.loads(self.claims.divvy(*arguments))["nodes"]
            for gpu in node["gpus"]
            for holder in gpu["holders"]
            if holder["claim"]
        )

    def pods(self) -> list[dict[str, Any]]:
        """Return its pods."""
        pods: list[dict[str, Any]] = self.claims.lab.get("pods", f"-n={self.namespace}")["items"]
        return pods

    def running(self) -> set[str]:
        """Return which Jobs have a running pod."""
        return {
            pod["metadata"]["labels"]["job-name"]
            for pod in self.pods()
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def reason(self, name: str) -> str:
        """Return why Kueue does not admit a Job or pod, "" while it does not say."""
        return refusal(self.kueue.api, self.namespace, name)

    def runs(self, name: str) -> None:
        """Wait until this Job alone has a running pod; fail with what keeps it from that."""
        deadline = time.monotonic() + 90
        while self.running() != {name}:
            assert time.monotonic() < deadline, self._waiting(name)
            time.sleep(0.2)

    def _waiting(self, name: str) -> str:
        """Return what Kueue, the scheduler and the kubelet say of a Job."""
        lab, place = self.claims.lab, f"-n={self.namespace}"
        events = [
            f"{event['reason']}: {event['message']}" for event in lab.get("events", place)["items"]
        ]
        statuses = [pod["status"] for pod in self.pods()]
        return json.dumps({"kueue": self.reason(name), "events": events, "pods": statuses})

    def waits(self, name: str, words: str) -> None:
        """Wait until Kueue says such a reason; fail with what it says instead."""
        deadline = time.monotonic() + 60
        while words not in (reason := self.reason(name)):
            assert time.monotonic() < deadline, reason
            time.sleep(0.2)

    def start(self, name: str, request: Mapping[str, Any]) -> None:
        """Create a Job of one pod; ``request`` is of a claim, or limits where it has slashes."""
        by_limits = any("/" in key for key in request)
        objects = [] if by_limits else [_template(name, self.namespace, request)]
        self.claims.lab.apply(*objects, _job(name, self.namespace, self.image, request, by_limits))

    def start_pod(self, name: str, limits: Mapping[str, Any]) -> None:
        """Create a pod."""
        metadata = {"name": name, "namespace": self.namespace, "labels": QUEUE}
        spec = _pod_spec(name, self.image, limits, by_limits=True)
        self.claims.lab.apply(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

    def end(self, name: str) -> None:
        """Delete a Job."""
        self.claims.lab.kubectl("delete", "job", name, f"-n={self.namespace}")

    @property
    def image(self) -> str:
        """Return the image of its pods."""
        return self.claims.lab.busybox


@contextlib.contextmanager
def team(kueue: Kueue, quotas: Mapping[str, str]) -> Iterator[Team]:
    """Give a team with quotas, each in the pool that serves it."""
    lab = kueue.claims.lab
    with lab.namespace(MANAGED) as namespace:
        lab.apply(_cluster_queue(kueue.queue, namespace, quotas), _local_queue(namespace))
        try:
            yield Team(kueue, namespace)
        finally:
            lab.kubectl("delete", "jobs,pods", "--all", f"-n={namespace}")
            lab.kubectl("delete", "clusterqueue", namespace)


def _cluster_queue(
    skeleton: Mapping[str, Any], name: str, quotas: Mapping[str, str]
) -> dict[str, Any]:
    (group,) = skeleton["spec"]["resourceGroups"]
    flavors = [
        {
            "name": flavor["name"],
            "resources": [
                {
                    "name": resource,
                    "nominalQuota": quotas.get(resource, "0")
                    if POOLS.get(resource) == flavor["name"]
                    else "0",
                }
                for resource in group["coveredResources"]
            ],
        }
        for flavor in group["flavors"]
    ]
    spec = {**skeleton["spec"], "resourceGroups": [{**group, "flavors": flavors}]}
    return {**skeleton, "metadata": {"name": name}, "spec": spec}


def _local_queue(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"clusterQueue": namespace},
    }


def _template(name: str, namespace: str, exactly: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}},
    }


def _pod_spec(name: str, image: str, request: Mapping[str, Any], by_limits: bool) -> dict[str, Any]:
    resources: dict[str, Any] = {"claims": [{"name": "gpu"}]}
    if by_limits:
        resources = {"limits": {key: str(value) for key, value in request.items()}}
    container = {"name": "main", "image": image, "command": ["sleep", "infinity"]}
    claims = [] if by_limits else [{"name": "gpu", "resourceClaimTemplateName": name}]
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "resourceClaims": claims,
        "containers": [{**container, "resources": resources}],
    }


def _job(
    name: str, namespace: str, image: str, request: Mapping[str, Any], by_limits: bool
) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": QUEUE},
        "spec": {
            "backoffLimit": 0,
            "template": {"spec": _pod_spec(name, image, request, by_limits)},
        },
    }


def share(memory: str, cores: int = 1) -> dict[str, Any]:
    sizes = {"memory": memory, "cores": str(cores)}
    return {"deviceClassName": "divvy-share", "capacity": {"requests": sizes}}


def partition(profile: str) -> dict[str, Any]:
    return {"deviceClassName": f"divvy-mig-{profile}"}


CASES = [
    pytest.param(
        SHARES, "8Gi", share("6000Mi"), share("3000Mi"), (6000, 3000), id="shares-by-capacity"
    ),
    pytest.param(
        MIG, "9984Mi", partition("2g.10gb"), partition("1g.5gb"), (9984, 4864), id="mig-by-counter"
    ),
    pytest.param(GPUS, "1", {GPUS: 1}, {GPUS: 1}, (0, 0), id="plugin-by-number"),
]


@pytest.mark.parametrize(("resource", "quota", "first", "second", "shown"), CASES)
def test_keeps_a_team_at_its_limit_while_another_runs(
    claims: Deployment,
    kueue: Kueue,
    resource: str,
    quota: str,
    first: dict[str, Any],
    second: dict[str, Any],
    shown: tuple[int, int],
) -> None:
    quotas = {resource: quota}
    with team(kueue, quotas) as full, team(kueue, quotas) as other:
        full.start("first", first)
        full.runs("first")
        full.start("second", second)
        other.start("second", second)
        other.runs("second")
        expected = f"insufficient unused quota for {resource} in flavor {POOLS[resource]}"
        full.waits("second", expected)
        assert full.running() == {"first"}
        for queue, mib in zip((full, other), shown, strict=True):
            claims.until(lambda queue=queue: queue.charged() == queue.used(), 30)
            assert queue.shown() == mib
            assert queue.charged()[resource] == (mib * MIB or 1)
        full.end("first")
        full.runs("second")


def test_runs_the_pages_example(claims: Deployment, kueue: Kueue) -> None:
    """One Job runs, the second one waits for the reason that the page quotes."""
    page = (REPOSITORY / "docs/quota.md").read_text()
    quoted = "insufficient unused quota for divvy.gpu/share-memory in flavor sizes"
    assert quoted in " ".join(page.split())
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    queue, local, template, job = (item for block in blocks for item in yaml.safe_load_all(block))
    lab = claims.lab
    lab.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": MANAGED}}
    )
    shown = Team(kueue, "team")
    try:
        lab.apply(queue, local, template)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        container |= {"image": lab.busybox, "command": ["sleep", "infinity"]}
        for name in ("train", "second"):
            lab.apply({**job, "metadata": {**job["metadata"], "name": name}})
            claims.until(lambda: shown.charged() == shown.used() == {SHARES: 6000 * MIB}, 90)
        shown.waits("second", quoted)
        shown.runs("train")
        assert shown.shown() == 6000
    finally:
        lab.kubectl("delete", "job", "--all", "-n=team")
        lab.kubectl("delete", "clusterqueue", "team")
        lab.kubectl("delete", "namespace", "team", "--wait=false")


def test_admits_pods_by_size_through_their_claims(claims: Deployment, kueue: Kueue) -> None:
    with team(kueue, {SHARES: "5Gi"}) as queue:
        limits = {GPUS: 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 10}
        for name in ("first", "second"):
            queue.start_pod(name, limits)
            claims.until(lambda: queue.charged() == queue.used() == {SHARES: 3000 * MIB}, 90)
        gated = {
            pod["metadata"]["name"]
            for pod in queue.pods()
            if {"name": "kueue.x-k8s.io/admission"} in pod["spec"].get("schedulingGates", ())
        }
        assert gated == {"second"}


def test_admits_no_job_by_size(kueue: Kueue) -> None:
    """A Job's template is no pod yet: its limits are no claims, and no requests beside them."""
    with team(kueue, {SHARES: "5Gi", GPUS: "1"}) as queue:
        queue.start("sized", {GPUS: 1, "nvidia.com/gpumem": 3000})
        queue.waits("sized", "resource nvidia.com/gpumem unavailable in ClusterQueue")
        queue.start("shared", {"nvidia.com/gpu.shared": 1})
        queue.waits("shared", "insufficient quota for nvidia.com/gpu.shared in flavor")
        assert queue.charged() == queue.used() == {}


REFUSED = [
    ({"nvidia.com/gpumem-percentage": 10}, "FirstAvailable device selection is not supported"),
    ({"nvidia.com/gpu.shared": 1}, "nvidia.com/gpu.shared resolves to DeviceClass divvy-share"),
    (
        {"nvidia.com/mig-1g.5gb": 1},
        "nvidia.com/mig-1g.5gb resolves to DeviceClass divvy-mig-1g.5gb",
    ),
]


def test_refuses_pods_whose_memory_kueue_cannot_tell(kueue: Kueue) -> None:
    with team(kueue, {SHARES: "5Gi", MIG: "5Gi"}) as queue:
        for number, (limits, reason) in enumerate(REFUSED):
            queue.start_pod(name := f"pod-{number}", limits)
            queue.waits(name, reason)
        assert queue.charged() == queue.used() == {}


def test_charges_two_hundred_random_workloads_what_they_take(
    claims: Deployment, kueue: Kueue
) -> None:
    """Two teams, whose quotas together always have room on the nodes."""
    draw = random.Random(2026)
    quotas = {SHARES: "20Gi", MIG: "9984Mi", GPUS: "2"}
    with team(kueue, quotas) as one_team, team(kueue, quotas) as other_team:
        teams = (one_team, other_team)
        jobs: list[tuple[Team, str]] = []
        waited = 0
        for number in range(WORKLOADS):
            queue = draw.choice(teams)
            queue.start(name := f"w{number}", _random_request(draw))
            jobs.append((queue, name))
            while len(jobs) > draw.randint(4, 10):
                queue, ended = jobs.pop(draw.randrange(len(jobs)))
                queue.end(ended)
            for settled in teams:
                claims.until(lambda queue=settled: queue.charged() == queue.used(), 90)
            waited += any(queue.reason(job) for queue, job in jobs)
        assert waited > WORKLOADS // 10, "the quotas were never full"


def _random_request(draw: random.Random) -> dict[str, Any]:
    kind = draw.random()
    if kind < 0.2:
        return {GPUS: draw.choice([1, 2])}
    if kind < 0.5:
        return partition(draw.choice(["1g.5gb", "1g.5gb", "2g.10gb"]))
    size = draw.choice(
        [f"{draw.randint(1, 9_000)}Mi", str(draw.randint(1, 9 << 30)), f"{draw.randint(1, 7)}.5Gi"]
    )
    return share(size, draw.randint(1, 8))
