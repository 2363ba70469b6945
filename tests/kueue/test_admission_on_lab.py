"""The hand-over to Kueue: with what `divvy plan -o kueue` writes, it charges what Divvy allocates.

Real Kueue, API server, scheduler, kubelets and agents; the GPUs are simulated. What Kueue does with
other workloads is its own tests' to show.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
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


def test_runs_the_pages_example(claims: Deployment, tmp_path: Path) -> None:
    """One Job runs, the second one waits for the reason that the page quotes, and runs then.

    What Kueue charges is what the claims were allocated, and what `divvy top` shows.
    """
    page = (REPOSITORY / "docs/quota.md").read_text()
    quoted = "insufficient unused quota for divvy.gpu/share-memory in flavor sizes"
    assert quoted in " ".join(page.split())
    page = page.partition("\n## Pools that scale from zero\n")[0]
    blocks = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    queue, local, template, job = (item for block in blocks for item in yaml.safe_load_all(block))
    configuration, *flavors, _ = yaml.safe_load_all(
        claims.divvy("plan", "--stack=lab", "-o", "kueue")
    )
    with running_kueue(claims.lab, configuration, tmp_path) as api:
        claims.lab.apply(*flavors)
        _run_pages_example(claims, api, (queue, local, template, job), quoted)


def _run_pages_example(
    claims: Deployment, api: ApiReader, objects: Sequence[Any], quoted: str
) -> None:
    queue, local, template, job = objects
    lab = claims.lab
    lab.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": MANAGED}}
    )
    shown = Team(claims, api, "team")
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
        lab.kubectl("delete", "job", "train", "-n=team")
        shown.runs("second")
    finally:
        lab.kubectl("delete", "job", "--all", "-n=team")
        lab.kubectl("delete", "clusterqueue", "team")
        lab.kubectl("delete", "namespace", "team", "--wait=false")
