"""Reads who holds which GPU: nodes, pods and claims of the API, and the agents' metrics."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, starmap
from time import monotonic
from typing import Any
from urllib.parse import quote

from divvy.errors import fail
from divvy.live.agent_metrics import samples_of
from divvy.live.cluster_reader import ClusterReader, NotAllowed, Silent
from divvy.live.observed_cluster import AgentAnswer, ObservedCluster, ObservedNode, observed_node
from divvy.live.pods import Claims, live_pods
from divvy.live.taint_rules import taint_rules
from divvy.live.usage import Usage
from divvy.live.usage_reading import read_usage
from divvy.model import Cluster
from divvy.model.api_names import METRICS_PORT, Component, component_labels
from divvy.model.pod_phase import UNFINISHED
from divvy.plan.fit.live_claims import ClaimedGpu, claimed_gpus
from divvy.plan.fit.readable import key_of, readable

_RESOURCES = "/apis/resource.k8s.io/v1"
# So many agents are asked at once, each for so long, and all of them together.
_AT_ONCE, _SECONDS, _SECONDS_FOR_ALL = 32, 5.0, 20.0
_LATE = f"its agent was not asked: the agents took longer than {_SECONDS_FOR_ALL:.0f} s together"


@dataclass
class UsageReader:
    """Reads one cluster, or one node of it, as often as it is asked to."""

    reader: ClusterReader
    cluster: Cluster
    name: str
    node: str | None = None
    namespace: str | None = None

    def read(self) -> Usage:
        """Return who holds which GPU now; notes say what this user may not see."""
        now = datetime.now(UTC)
        notes: list[str] = []
        nodes = self._nodes()
        claims, gpus = self._claims(notes)
        raw_pods, has_all_pods = self._raw_pods(notes)
        pods = live_pods(raw_pods, self.cluster, claims, now, self.reader.note)
        agents = self._agents(notes)
        notes += self.reader.taken_notes()
        observed = ObservedCluster(
            nodes,
            pods,
            gpus,
            {} if agents is None else agents,
            has_all_pods=has_all_pods,
            notes=tuple(notes),
        )
        if agents is None:
            observed = replace(observed, no_answer="this user may not list the agents")
        return read_usage(self.cluster, self.name, observed, now)

    def _nodes(self) -> list[ObservedNode]:
        if self.node is None:
            return list(
                readable(self.reader.paged("/api/v1/nodes"), observed_node, self.reader.note)
            )
        raw = self.reader.find(f"/api/v1/nodes/{quote(self.node, safe='')}")
        if raw is None:
            fail(f"the cluster has no node {self.node}")
        return [observed_node(raw)]

    def _claims(self, notes: list[str]) -> tuple[Claims, tuple[ClaimedGpu, ...]]:
        only = "" if self.node is None else f"?fieldSelector=spec.nodeName%3D{quote(self.node)}"
        try:
            claims = list(self.reader.paged(f"{_RESOURCES}/resourceclaims"))
            slices = list(self.reader.paged(f"{_RESOURCES}/resourceslices{only}"))
        except NotAllowed as refused:
            if any(
                rule.claims for profile in self.cluster.profiles.values() for rule in profile.rules
            ):
                notes.append(f"what pods claim is not shown: {refused.reason}")
            return {}, ()
        named = {key_of(claim): claim for claim in claims}
        gpus = claimed_gpus(
            slices,
            claims,
            self._taint_rules(slices, notes),
            unread=self.reader.unread("resourceclaims"),
            note=self.reader.note,
        )
        return named, gpus

    def _taint_rules(
        self, slices: Iterable[Mapping[str, Any]], notes: list[str]
    ) -> list[dict[str, Any]]:
        try:
            return taint_rules(self.reader, slices)
        except NotAllowed as refused:
            notes.append(f"what DeviceTaintRules keep from pods is not shown: {refused.reason}")
            return []

    def _raw_pods(self, notes: list[str]) -> tuple[Iterable[Mapping[str, Any]], bool]:
        """Return the pods that have not ended, and whether these are those of all namespaces."""
        only = "" if self.node is None else f",spec.nodeName%3D{quote(self.node)}"
        query = f"pods?{UNFINISHED}{only}"
        pages = self.reader.paged(f"/api/v1/{query}")
        try:
            first = next(pages, None)
        except NotAllowed as refused:
            if self.namespace is None:
                notes.append(f"what pods ask for is not shown without -n: {refused.reason}")
                return (), False
            return self._of_namespace(f"namespaces/{quote(self.namespace)}/{query}", notes), False
        return (() if first is None else chain((first,), pages)), True

    def _of_namespace(self, query: str, notes: list[str]) -> list[Mapping[str, Any]]:
        try:
            return list(self.reader.paged(f"/api/v1/{query}"))
        except NotAllowed as refused:
            notes.append(f"what pods ask for is not shown: {refused.reason}")
            return []

    def _agents(self, notes: list[str]) -> dict[str, AgentAnswer] | None:
        """Return what the agents answer, by node; None if this user may not list them."""
        labels = ",".join(
            f"{key}%3D{value}" for key, value in component_labels(Component.AGENT).items()
        )
        only = "" if self.node is None else f"&fieldSelector=spec.nodeName%3D{quote(self.node)}"
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods?labelSelector={labels}{only}"
        try:
            agents = list(readable(self.reader.paged(path), _agent, self.reader.note))
        except NotAllowed as refused:
            notes.append(f"GPU usage is not shown: {refused.reason}")
            return None
        return self._agent_answers(sorted(pod for pod in agents if pod[0]), notes)

    def _agent_answers(
        self, agents: list[tuple[str, str]], notes: list[str]
    ) -> dict[str, AgentAnswer]:
        """Ask the agents, the first one alone: what it may not be asked, no other may."""
        if not agents:
            return {}
        deadline = monotonic() + _SECONDS_FOR_ALL

        def ask(_node: str, pod: str) -> AgentAnswer:
            return AgentAnswer(problem=_LATE) if monotonic() > deadline else self._ask(pod)

        try:
            first = self._ask(agents[0][1])
        except NotAllowed as refused:
            notes.append(f"GPU usage is not shown: {refused.reason}")
            refusal = AgentAnswer(problem="this user may not read its agent's metrics")
            return {node: refusal for node, _ in agents}
        pool = ThreadPoolExecutor(max_workers=_AT_ONCE)
        try:
            running = list(starmap(pool.submit, ((ask, *agent) for agent in agents[1:])))
            answers = [first, *(future.result() for future in running)]
        finally:
            # Whoever interrupts does not wait for agents that do not answer.
            pool.shutdown(wait=False, cancel_futures=True)
        return {node: answer for (node, _), answer in zip(agents, answers, strict=True)}

    def _ask(self, pod: str) -> AgentAnswer:
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{pod}:{METRICS_PORT}/proxy"
        try:
            return AgentAnswer(samples_of(self.reader.proxied(f"{path}/metrics", _SECONDS)))
        except Silent as silent:
            return AgentAnswer(problem=f"its agent does not answer: {silent}")
        except ValueError as error:
            return AgentAnswer(problem=f"its agent's answer is {error}")


def _agent(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Return an agent's node and name; no node where it is about to go."""
    gone = raw["metadata"].get("deletionTimestamp")
    return "" if gone else raw["spec"].get("nodeName") or "", raw["metadata"]["name"]
