"""The hand-over to Kueue: with what `divvy plan -o kueue` writes, it charges what Divvy allocates.

Real Kueue, API server, scheduler, kubelets and agents; the GPUs are simulated. What Kueue does with
other workloads is its own tests' to show.
"""

from __future__ import annotations

import copy
import json
import time
from collections import Counter
from collections.abc import Iterator
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
SHARES = "divvy.gpu/share-memory"
MIB = 1 << 20


@pytest.fixture(scope="module")
def claims(deployed: Deployment) -> Iterator[Deployment]:
    """Deploy the lab's pools with claims."""
    with deployed.claims():
        deployed.up()
        yield deployed


@dataclass(frozen=True)
class Team:
    """A namespace whose Jobs wait in a ClusterQueue of its name."""

    claims: Deployment
    kueue: ApiReader
    namespace: str

    def charged(self) -> Counter[str]:
        """Return what the ClusterQueue has in use, by resource: bytes, or numbers of devices."""
        queue = self.kueue.get("clusterqueue", self.namespace)
        return Counter(
            {
                resource["name"]: int(parse_quantity(resource["total"]))
                for flavor in queue.get("status", {}).get("flavorsUsage", ())
                for resource in flavor["resources"]
                if resource["total"] != "0"
            }
        )

    def used(self) -> Counter[str]:
        """Return what its claims have been allocated."""
        lab, place = self.claims.lab, f"-n={self.namespace}"
        taken: Counter[str] = Counter()
        for claim in lab.get("resourceclaims", place)["items"]:
            allocation = claim.get("status", {}).get("allocation", {}).get("devices", {})
            for result in allocation.get("results", ()):
                taken[SHARES] += int(parse_quantity(result["consumedCapacity"]["memory"]))
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
        return refusal(self.kueue, self.namespace, name)

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


@dataclass(frozen=True)
class PagesTeam:
    """The team of docs/quota.md, with its queue, and the Job that the page shows."""

    team: Team
    job: dict[str, Any]

    def create(self, name: str, **spec: object) -> None:
        """Create a Job as the page's, whose container sleeps; `spec` is its pod's."""
        job = copy.deepcopy(self.job)
        job["metadata"]["name"] = name
        pod = job["spec"]["template"]["spec"]
        pod |= {"terminationGracePeriodSeconds": 0, **spec}
        lab = self.team.claims.lab
        pod["containers"][0] |= {"image": lab.busybox, "command": ["sleep", "infinity"]}
        lab.apply(job)


@pytest.fixture(scope="module")
def kueue(claims: Deployment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiReader]:
    """Run Kueue with the configuration and the flavors that Divvy writes."""
    configuration, *flavors, _ = yaml.safe_load_all(
        claims.divvy("plan", "--stack=lab", "-o", "kueue")
    )
    folder = tmp_path_factory.mktemp("kueue")
    with running_kueue(claims.lab, configuration, folder) as api:
        claims.lab.apply(*flavors)
        yield api


@pytest.fixture
def pages_team(claims: Deployment, kueue: ApiReader) -> Iterator[PagesTeam]:
    """Make the page's team."""
    page = (REPOSITORY / "docs/quota.md").read_text()
    page = page.partition("\n## Pools that scale from zero\n")[0]
    blocks = [list(yaml.safe_load_all(text)) for text in _yaml_blocks(page)]
    (queue, local), (template, job), (preemption,) = blocks
    queue["spec"] |= preemption
    lab = claims.lab
    lab.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": MANAGED}}
    )
    try:
        lab.apply(queue, local, template)
        yield PagesTeam(Team(claims, kueue, "team"), job)
    finally:
        lab.kubectl("delete", "job", "--all", "-n=team")
        lab.kubectl("delete", "clusterqueue", "team")
        lab.kubectl("delete", "namespace", "team")


def _yaml_blocks(page: str) -> list[str]:
    return [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]


def test_runs_the_pages_example(pages_team: PagesTeam) -> None:
    """One Job runs, the second one waits for the reason that the page quotes, and runs then.

    What Kueue charges is what the claims were allocated, and what `divvy top` shows.
    """
    page = (REPOSITORY / "docs/quota.md").read_text()
    quoted = "insufficient unused quota for divvy.gpu/share-memory in flavor sizes"
    assert quoted in " ".join(page.split())
    team = pages_team.team
    for name in ("train", "second"):
        pages_team.create(name)
        team.claims.until(lambda: team.charged() == team.used() == {SHARES: 6000 * MIB}, 90)
    team.waits("second", quoted)
    team.runs("train")
    assert team.shown() == 6000
    team.claims.lab.kubectl("delete", "job", "train", "-n=team")
    team.runs("second")


def test_gives_the_share_of_a_lower_priority_to_a_higher(pages_team: PagesTeam) -> None:
    team, lab = pages_team.team, pages_team.team.claims.lab
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    lab.apply({**urgent, "metadata": {"name": "urgent"}})
    try:
        pages_team.create("train")
        team.runs("train")
        pages_team.create("now", priorityClassName="urgent")
        team.runs("now")
        team.waits("train", "divvy.gpu/share-memory")
        assert team.charged() == team.used() == {SHARES: 6000 * MIB}
        assert lab.get("job/train", "-n=team")["spec"]["suspend"]
        lab.kubectl("delete", "job", "now", "-n=team")
        team.runs("train")
    finally:
        lab.kubectl("delete", "priorityclass", "urgent")
