"""Sequences of pods that come and go in bursts, reproducible by their seeds but for time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.claim_walk.asks import BY_HAND, NAMESPACES, WalkPod, random_pod
from tests.claim_walk.cluster import CLAIMS, NODES, WalkCluster
from tests.claim_walk.hardware import MODELS, OFFERS, Gpu
from tests.claim_walk.oracle import Broken

_PODS = "/api/v1/namespaces/{}/pods"
_TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates"
_AT_ONCE = 6
_PATIENCE = 60.0
# The scheduler of Kubernetes 1.36 can miss that a device came free while it looked at a pod: it
# looks again when something changes, or after five minutes.
_WAKE_AFTER, _RESTART_AFTER = 6.0, 20.0
_LOOK = 0.1


@dataclass
class Count:
    """What a walk has come to: pods in all, and those that ran and waited in the end of sequences.

    ``woken`` counts the sequences in which the scheduler had missed that a device came free, and
    ``restarted`` those in which it still took it for held when it looked again.
    """

    pods: int = 0
    ran: int = 0
    waited: int = 0
    woken: int = 0
    restarted: int = 0


class PodSequence:
    """One sequence: GPUs of its own, bursts of pods, and the end of them all."""

    def __init__(self, cluster: WalkCluster, name: str, random: Random, count: Count) -> None:
        self._cluster = cluster
        self._name = name
        self._random = random
        self._count = count
        self._pods: dict[str, WalkPod] = {}
        self._gpus: list[Gpu] = []
        self._created = 0

    def run(self) -> None:
        """Take all steps; raises Broken."""
        random = self._random
        self._gpus = _random_gpus(random)
        self._cluster.publish(self._gpus)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for _ in range(random.randint(2, 4)):
                ending = random.sample(sorted(self._pods), random.randint(0, len(self._pods)))
                coming = [self._new() for _ in range(random.randint(2, 8))]
                work = [pool.submit(self._end, self._pods.pop(name)) for name in ending]
                work += [pool.submit(self._create, pod) for pod in coming]
                for future in work:
                    future.result()
                self._pods |= {pod.name: pod for pod in coming}
                time.sleep(random.choice((0, 0, 0.1, 0.5)))
                self._cluster.spread()
            self._settle()
        self._end_all()

    def _new(self) -> WalkPod:
        self._created += 1
        return random_pod(self._random, f"{self._name}-{self._created}")

    def _create(self, pod: WalkPod) -> None:
        server = self._cluster.server
        if pod.template is not None:
            response = server.send("POST", _TEMPLATES.format(pod.namespace), pod.template)
            _expect(response.status == 201, f"{pod.name}: {response.body}")
        response = server.send("POST", _PODS.format(pod.namespace), pod.body)
        _expect(response.status == 201, f"{pod.name}: {response.body}")
        self._count.pods += 1

    def _end(self, pod: WalkPod) -> None:
        """End a pod: most are deleted, some only finish."""
        server, path = self._cluster.server, f"{_PODS.format(pod.namespace)}/{pod.name}"
        if self._random.random() < 0.3:
            live = server.send("GET", path).body
            if live["spec"].get("nodeName"):
                live["status"]["phase"] = "Succeeded"
                if server.send("PUT", f"{path}/status", live).status == 200:
                    return
        server.send("DELETE", path, gracePeriodSeconds="0")

    def _settle(self) -> None:
        """Wait until whoever can have something has it; then everybody has the right thing."""
        began = time.monotonic()
        woken = restarted = False
        while True:
            claims = self._cluster.watcher.claims
            live = {pod["metadata"]["name"]: pod for pod in self._listed("pods")}
            bound = [name for name in self._pods if live[name]["spec"].get("nodeName")]
            missing = self._missing(bound, claims)
            if not missing:
                break
            waited = time.monotonic() - began
            if waited > _WAKE_AFTER and not woken:
                woken = True
                self._count.woken += 1
                self._cluster.wake()
            if waited > _RESTART_AFTER and not restarted:
                restarted = True
                self._count.restarted += 1
                print(f"{self._name}: after {waited:.0f} s {missing}", flush=True)
                self._cluster.scheduler.restart()
            if waited > _PATIENCE:
                conditions = [pod["status"].get("conditions") for pod in live.values()]
                raise Broken(f"{missing}, and that does not change: {conditions}")
            time.sleep(_LOOK)
        oracle = self._cluster.watcher.oracle
        assert oracle is not None
        # Not of the watch, which may be a moment behind the list of pods.
        claims = self._cluster.server.send("GET", CLAIMS).body["items"]
        for name in bound:
            live_pod = live[name]
            oracle.check_pod(
                self._pods[name], live_pod["spec"]["nodeName"], live_pod["metadata"]["uid"], claims
            )
        self._count.ran += len(bound)
        self._count.waited += len(self._pods) - len(bound)

    def _missing(self, bound: Sequence[str], claims: Sequence[dict[str, Any]]) -> str:
        """Describe which pod waits although a node has idle GPUs for it."""
        oracle = self._cluster.watcher.oracle
        assert oracle is not None
        held = {allocation.gpu.uuid for allocation in oracle.allocations(claims)}
        free = [gpu for gpu in self._gpus if gpu.uuid not in held]
        for name, pod in self._pods.items():
            if name in bound or len(pod.asks) > 1:
                continue
            (ask,) = pod.asks
            for node in NODES:
                fitting = [gpu for gpu in free if gpu.node == node and ask.fits(gpu)]
                if len(fitting) >= ask.count:
                    uuids = ", ".join(f"{gpu.uuid} ({gpu.profile})" for gpu in fitting)
                    return f"{name} waits for {ask}, and {uuids} are free"
        return ""

    def _end_all(self) -> None:
        """End everything: all has to be given back."""
        server = self._cluster.server
        for namespace in NAMESPACES:
            server.send("DELETE", _PODS.format(namespace), gracePeriodSeconds="0")
            server.send("DELETE", _TEMPLATES.format(namespace), labelSelector=BY_HAND)
        deadline = time.monotonic() + _PATIENCE
        while left := [claim["metadata"]["name"] for claim in self._cluster.watcher.claims]:
            if time.monotonic() > deadline:
                raise Broken(f"claims are left: {left}")
            time.sleep(_LOOK)
        pods = [pod["metadata"]["name"] for pod in self._listed("pods")]
        _expect(not pods, f"pods are left: {pods}")

    def _listed(self, what: str) -> list[dict[str, Any]]:
        items = self._cluster.server.send("GET", f"/api/v1/{what}").body["items"]
        return [obj for obj in items if obj["metadata"]["namespace"] in NAMESPACES]


def walk(cluster: WalkCluster, seed: int, sequences: int, first: int = 0) -> Count:
    """Take so many sequences from the first on; raises Broken, which names the sequence."""
    count = Count()
    for number in range(first, first + sequences):
        try:
            PodSequence(cluster, f"pod-{number}", Random(f"{seed}/{number}"), count).run()
        except Broken as broken:
            raise Broken(f"sequence {number} of seed {seed}: {broken}") from broken
    return count


def _random_gpus(random: Random) -> list[Gpu]:
    gpus = []
    for node in NODES[: random.randint(2, 3)]:
        model, profile = random.choice(MODELS), random.choice(list(OFFERS))
        for index in range(random.randint(1, 3)):
            gpus.append(Gpu(f"GPU-{node}-{index}", index, node, model, profile))
    return gpus


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise Broken(otherwise)
