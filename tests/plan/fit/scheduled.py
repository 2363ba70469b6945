"""Random pods on random plans: what fit says beside what the stock scheduler does with them.

A real API server and a real scheduler; the nodes are objects with the allocatable of the plan, and
slices as agents write them. No kubelet: a pod that has a node has been scheduled. Long runs:
``python -m tests.plan.fit.scheduled SEED CASES``.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from divvy.claim_templates.template import template_of
from divvy.model import Cluster, parse_cluster
from divvy.model.claim_devices import claimable_gpu
from divvy.model.claim_names import parse_template_name
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import slice_specs
from divvy.plan import NodePlan, Plan, plan
from divvy.plan.fit import Fit, fit, nodes_of_cluster, nodes_of_plan, read_manifests
from divvy.plan.fit.claim_allocation import NodeDevices
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.plan.fit.manifest_kinds import Document
from divvy.plan.fit.node_selection import Labels
from divvy.plan.predict.claimable import BY_CLAIMS
from lab.cluster.tools import KUBERNETES
from tests.bare_cluster import bare_cluster
from tests.plan.fit.random_pods import (
    POOLS,
    PROFILES,
    TAINT,
    by_hand,
    pod_object,
    random_cluster,
    random_pod,
)
from tests.render.objects.claims.api_server import MEMORY, ApiServer, policies_of

MAKER = "divvy-system:divvy-claim-templates"
CLAIMS = "/apis/resource.k8s.io/v1"


class Wrong(Exception):
    """Fit and the scheduler disagree; the text says about what."""


@contextlib.contextmanager
def scheduling() -> Iterator[ApiServer]:
    """Start an API server with a scheduler and the classes and policies of PROFILES."""
    with bare_cluster("resourceclaim-controller") as bare, tempfile.TemporaryFile() as log:
        server = ApiServer(bare)
        server.apply(*policies_of({"profiles": PROFILES, "pools": POOLS}))
        command = [
            *("setpriv", "--pdeathsig", "KILL", str(KUBERNETES.bin / "kube-scheduler")),
            *(f"--kubeconfig={bare.kubeconfig}", "--leader-elect=false", "--secure-port=0"),
        ]
        sized = pod_object("probe", [{"limits": {MEMORY: 1}}])
        # Policies take effect a moment after they were made, each by itself.
        server.until(lambda: "resourceClaims" in server.dry_run(sized).body.get("spec", ()))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        yield server
        process.kill()
        process.wait()
        server.close()


class Case:
    """One random cluster, its nodes on the server, and the pods that are created there."""

    def __init__(self, server: ApiServer, seed: int) -> None:
        self.server = server
        self.seed = seed
        self.draw = random.Random(seed)
        self.value = random_cluster(self.draw)
        self.cluster: Cluster = parse_cluster(self.value)
        self.plan: Plan = plan(self.cluster, "random")
        self.scarce = self.draw.random() < 0.3
        self.counts: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        """Create pods one by one; raise Wrong if the scheduler does what fit does not say."""
        try:
            self._make_nodes()
            offered = self._offered()
            pods = [[random_pod(self.draw, f"pod-{number}", offered)] for number in range(10)]
            claims = random.Random(f"{self.seed}/by hand")
            for number in range(4):
                pods.insert(claims.randint(0, len(pods)), [*by_hand(claims, f"claim-{number}")])
            self._run(pods)
        finally:
            self._remove()
        return self.counts

    def _offered(self) -> list[str]:
        """Return the resources that some node gives, by its device plugin or by claims."""
        offered = {
            resource for pool in self.plan.pools if pool.node for resource in pool.node.offered
        }
        by_claims = {resource.removesuffix(BY_CLAIMS) for resource in offered}
        return sorted(by_claims | ({MEMORY} if by_claims != offered else set()))

    def _run(self, manifests: list[list[dict[str, Any]]]) -> None:
        """Create pods; each has the template of its claim before it, if it has one of its own."""
        whole = self._against_plan([document for manifest in manifests for document in manifest])
        # What fit does with all of them is the scheduler's as long as both have chosen alike.
        alike = not self.scarce
        left = []
        for number, (*templates, pod) in enumerate(manifests):
            prediction = self._beside_what_is_held([*templates, pod])
            for template in templates:
                self._create_template(template)
            self._create(pod)
            node = self._verdict(pod["metadata"]["name"], expected=bool(prediction))
            if (node is not None) != bool(prediction):
                raise Wrong(self._words(pod, prediction, node))
            self.counts["fits" if prediction else "does not fit"] += 1
            if node is None:
                left.append(pod["metadata"]["name"])
            if alike:
                predicted = whole.pods[number]
                if bool(predicted.fitting) != (node is not None):
                    raise Wrong(f"all from the plan: {self._words(pod, whole, node)}")
                self.counts["also all from the plan"] += 1
                single = all(pool.count == 1 for pool in self.plan.pools)
                chosen = predicted.places[0].pool if predicted.places else None
                alike = single and (node is None or node.partition("-")[0] == chosen)
        for name in left:
            # Nothing was given back meanwhile, so that what did not fit does not fit now.
            if self._pod(name)["spec"].get("nodeName"):
                raise Wrong(f"{name} was scheduled later, and fit said that it does not fit")

    def _against_plan(self, pods: list[dict[str, Any]]) -> Fit:
        read = read_manifests([Document("pods", pod) for pod in pods], self.cluster)
        nodes = [
            # The labels of the test's nodes are known, and no agent writes their slices again.
            replace(node, labels=Labels(_labels(node.pool or "", number)), spread=False, count=1)
            for node in nodes_of_plan(self.cluster, self.plan)
            for number in range(node.count)
        ]
        with patch.object(NodeDevices, "_packed", lambda devices, _before: devices.gpus):
            return fit(self.cluster, "random", nodes, read.pods)

    def _beside_what_is_held(self, manifests: list[dict[str, Any]]) -> Fit:
        gpus = claimed_gpus(
            self._listed(f"{CLAIMS}/resourceslices"), self._listed(f"{CLAIMS}/resourceclaims")
        )
        nodes = self._listed("/api/v1/nodes")
        nodes_now = nodes_of_cluster(
            self.cluster, self.plan, nodes, self._listed("/api/v1/pods"), gpus
        )
        read = read_manifests([Document("pod", manifest) for manifest in manifests], self.cluster)
        return fit(self.cluster, "random", nodes_now, read.pods)

    def _create(self, pod: dict[str, Any]) -> None:
        for entry in _dry_run(self.server, pod).get("resourceClaims", ()):
            name = entry["resourceClaimTemplateName"]
            request = parse_template_name(name)
            if request is not None:
                kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
                template = template_of(request, {})
                self._create_template({**kind, "metadata": {"name": name}, "spec": template})
        response = self.server.send("POST", "/api/v1/namespaces/default/pods", pod)
        assert response.status == 201, response.body

    def _create_template(self, template: dict[str, Any]) -> None:
        path = f"{CLAIMS}/namespaces/default/resourceclaimtemplates"
        ours = template["metadata"]["name"].startswith("divvy-")
        response = self.server.send("POST", path, template, account=MAKER if ours else "")
        assert response.status in (201, 409), response.body

    def _verdict(self, name: str, *, expected: bool) -> str | None:
        """Return the node that the scheduler chooses, None if it finds none."""
        deadline = time.monotonic() + 60
        refused = 0
        while time.monotonic() < deadline:
            pod = self._pod(name)
            if pod["spec"].get("nodeName"):
                return str(pod["spec"]["nodeName"])
            status = pod.get("status", {})
            claim_count = len(status.get("resourceClaimStatuses", ()))
            conditions = status.get("conditions", ())
            if claim_count == len(pod["spec"].get("resourceClaims", ())) and any(
                condition["type"] == "PodScheduled"
                and condition.get("reason") == "Unschedulable"
                and "claim to be created" not in condition["message"]
                for condition in conditions
            ):
                refused += 1
                # A claim that was made after the first look makes the scheduler look again.
                if not expected or refused > 400:
                    return None
            time.sleep(0.03)
        raise Wrong(f"{name}: the scheduler has not looked at it")

    def _words(self, pod: dict[str, Any], prediction: Fit, node: str | None) -> str:
        outcome = f"goes to {node}" if node else "is unschedulable"
        conditions = self._pod(pod["metadata"]["name"]).get("status", {}).get("conditions")
        verdicts = [(pod.fitting, pod.reason, pod.places) for pod in prediction.pods]
        return f"{pod}\n{outcome}: {conditions}\nfit: {verdicts}\n{self.value['pools']}"

    def _make_nodes(self) -> None:
        cpu, pods = ("4", "6") if self.scarce else ("500", "110")
        for pool in self.plan.pools:
            assert pool.node is not None
            for number in range(pool.count or 0):
                self._make_node(pool.name, number, pool.node, {"cpu": cpu, "pods": pods})

    def _make_node(self, pool: str, number: int, node: NodePlan, more: dict[str, str]) -> None:
        # Nothing that the scheduler may remember of an earlier case has this name.
        name = f"{pool}-{self.seed}-{number}"
        quantities = {
            **{resource: str(count) for resource, count in node.per_node.items()},
            **more,
            "memory": "500Gi",
        }
        taints = [TAINT] if self.cluster.pools[pool].tolerations else []
        metadata = {"name": name, "labels": _labels(pool, number)}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {"taints": taints},
        }
        ready = {"type": "Ready", "status": "True"}
        self._slices(name, node)
        node_object = self.server.send("POST", "/api/v1/nodes", body).body
        status = {"allocatable": quantities, "capacity": quantities, "conditions": [ready]}
        path = f"/api/v1/nodes/{name}"
        answer = self.server.send("PUT", f"{path}/status", {**node_object, "status": status})
        assert answer.status == 200, answer.body
        # No controller watches these nodes: the taint of one that has not reported yet stays.
        node_object = answer.body
        node_object["spec"]["taints"] = taints
        answer = self.server.send("PUT", path, node_object)
        assert answer.status == 200, answer.body

    def _slices(self, name: str, node: NodePlan) -> None:
        offered = [
            OfferedGpu(
                claimable_gpu(
                    f"GPU-{name}-{gpu.index}", gpu.model.memory_mib, gpu.model, gpu.claims
                ),
                gpu.index,
                gpu.model.product,
                gpu.model.architecture,
                simulated=True,
            )
            for gpu in node.gpus
            if gpu.claims is not None
        ]
        for key, spec in slice_specs(name, offered, {}, {}, {}, {}).items():
            body = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": key},
                "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
            }
            response = self.server.send("POST", f"{CLAIMS}/resourceslices", body)
            assert response.status == 201, response.body

    def _remove(self) -> None:
        send = self.server.send
        send("DELETE", "/api/v1/namespaces/default/pods", gracePeriodSeconds="0")
        self.server.until(lambda: not self._listed("/api/v1/pods"))
        send("DELETE", f"{CLAIMS}/namespaces/default/resourceclaimtemplates")
        send("DELETE", f"{CLAIMS}/resourceslices")
        send("DELETE", "/api/v1/nodes")
        self.server.until(lambda: not self._listed(f"{CLAIMS}/resourceclaims"))

    def _pod(self, name: str) -> dict[str, Any]:
        return self.server.send("GET", f"/api/v1/namespaces/default/pods/{name}").body

    def _listed(self, path: str) -> list[dict[str, Any]]:
        return list(self.server.send("GET", path).body["items"])


def _labels(pool: str, number: int) -> dict[str, str]:
    return {"pool": pool, "number": str(number), **({"zone": "x"} if pool == "a" else {})}


def _dry_run(server: ApiServer, pod: dict[str, Any]) -> dict[str, Any]:
    answer = server.dry_run(pod)
    assert answer.status == 201, answer.body
    return dict(answer.body["spec"])


def main() -> None:
    """Run so many cases from a seed, and say what was seen."""
    seed, cases = int(sys.argv[1]), int(sys.argv[2])
    began = time.monotonic()
    total: Counter[str] = Counter()
    with scheduling() as server:
        for number in range(seed, seed + cases):
            try:
                total += Case(server, number).run()
            except Wrong as wrong:
                sys.exit(f"seed {number}: {wrong}\nafter {dict(total)}")
    seen = ", ".join(f"{count} {what}" for what, count in sorted(total.items()))
    print(f"seeds {seed} to {seed + cases - 1}: {seen}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
