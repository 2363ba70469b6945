"""Which pods of a lower priority have to go for a pod that waits for a claim.

Kubernetes' scheduler preempts for everything but devices of claims. What is decided here is what
it does for the others, node by node (pkg/scheduler/framework/preemption): without all pods of a
lower priority the pod must fit; those with which it still fits stay, the most important first.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import combinations, islice, takewhile
from typing import Any

from divvy.model import Cluster
from divvy.plan.anti_affinity import Repulsion, repulsions
from divvy.plan.claim_quota import ClaimQuotas, Usage, usage_of_claim, usage_of_resources
from divvy.plan.fit.fitting import claim_kinds
from divvy.plan.fit.nodes import FitNode, nodes_of_cluster
from divvy.plan.fit.pods import Around, AskingPod, asking_pod
from divvy.plan.fit.room import Room, room_of, served_by_claims
from divvy.plan.fit.shortage import Shortage
from divvy.plan.live_claims import claimed_gpus, without_claims
from divvy.plan.node_selection import repelled, selects
from divvy.plan.pod_requests import pod_requests, sum_of
from divvy.plan.prediction import plan
from divvy.plan.waiting import is_claim_of, is_unscheduled, lacks_claims

_ENDED = ("Succeeded", "Failed")
MIRROR, _STAYS = "kubernetes.io/config.mirror", 1 << 31
_DEFAULT_SCHEDULER = "default-scheduler"
# Sets of victims that are tried for one that costs less: on a node, and on all of them but for a
# few on each.
_MAX_SETS, _MAX_SETS_IN_ALL, _MIN_SETS = 500, 2000, 20
_NO_NODE = "no node takes it without pods of a lower priority that may be evicted"
# A pod more costs more than any difference of priorities, as the scheduler has it.
_POD = 1 << 32


@dataclass(frozen=True)
class Observed:
    """What a cluster has, as its API lists it."""

    nodes: Sequence[Mapping[str, Any]]
    pods: Sequence[Mapping[str, Any]]
    claims: Sequence[Mapping[str, Any]]
    slices: Sequence[Mapping[str, Any]]
    budgets: Sequence[Mapping[str, Any]] = ()
    quotas: Sequence[Mapping[str, Any]] = ()
    taint_rules: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, order=True)
class PodName:
    """A pod of the API."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Decision:
    """What is to be done for a pod: the victims on a node, or why there are none."""

    pod: PodName
    priority: int = 0
    node: str = ""
    victims: tuple[PodName, ...] = ()
    reason: str = ""


def decide(cluster: Cluster, observed: Observed, seconds: float = math.inf) -> tuple[Decision, ...]:
    """Decide for every pod that waits for a claim, those of the highest priority first.

    A pod that fits as soon as pods that are ending have gone has no victims. After ``seconds``
    what was observed is too old: the pods that are left wait for another look.
    """
    ends = time.monotonic() + seconds
    search = _Search(cluster, observed, ends)
    waiting = [pod for pod in observed.pods if is_refused(pod)]
    waiting.sort(key=lambda pod: (-_priority(pod), _created(pod), _name(pod)))
    in_time = takewhile(lambda _: time.monotonic() < ends, waiting)
    decisions = (search.decide(pod) for pod in in_time)
    return tuple(decision for decision in decisions if decision is not None)


def is_refused(pod: Mapping[str, Any]) -> bool:
    """Return whether the stock scheduler has looked at a pod and found no node."""
    scheduler = pod["spec"].get("schedulerName") or _DEFAULT_SCHEDULER
    if not is_unscheduled(pod) or pod["metadata"].get("deletionTimestamp"):
        return False
    return scheduler == _DEFAULT_SCHEDULER and any(
        (condition["type"], condition["status"], condition.get("reason"))
        == ("PodScheduled", "False", "Unschedulable")
        for condition in pod["status"].get("conditions") or ()
    )


@dataclass(frozen=True)
class _RunningPod:
    name: PodName
    priority: int
    created: str
    requests: Mapping[str, Fraction]
    budgets: tuple[int, ...]


@dataclass
class _Node:
    """A node with all its pods; ``guests`` are those that it is kept for.

    ``holders`` are the claims that are free when the pods of this node that hold them have gone.
    """

    fit: FitNode
    pods: list[_RunningPod]
    holders: Mapping[tuple[str, str], frozenset[PodName]]
    guests: list[AskingPod] = field(default_factory=list)


class _Search:
    def __init__(self, cluster: Cluster, observed: Observed, ends: float) -> None:
        self._cluster, self._observed, self._ends = cluster, observed, ends
        self._kinds = claim_kinds(cluster)
        self._quotas = ClaimQuotas(observed.quotas)
        # What no node takes does not fit after more decisions either, and pods come in hundreds.
        self._no_node: set[str] = set()
        self._decided_claims: set[tuple[str, str]] = set()
        self._budgets = [_allowed(budget) for budget in observed.budgets]
        # A claim outlives its pods for a moment, while it is taken back.
        live = {_name(pod) for pod in observed.pods}
        reserved = map(_reserved_for, observed.claims)
        self._holders = {claim: pods & live for claim, pods in reserved if pods}
        # Pods that end, and victims.
        self._gone = {
            _name(pod) for pod in observed.pods if pod["metadata"].get("deletionTimestamp")
        }
        # Those that go with their pods, by namespace.
        self._own_claims: dict[str, list[tuple[Usage, frozenset[PodName]]]] = {}
        for claim in observed.claims:
            name, pods = _reserved_for(claim)
            if pods and claim["metadata"].get("ownerReferences"):
                own_claim = (usage_of_claim(claim), pods & live)
                self._own_claims.setdefault(name[0], []).append(own_claim)
        on_node: dict[str, list[Mapping[str, Any]]] = {}
        for pod in observed.pods:
            if _runs(pod):
                on_node.setdefault(pod["spec"]["nodeName"], []).append(pod)
        labels = {
            node["metadata"]["name"]: node["metadata"].get("labels") or {}
            for node in observed.nodes
        }
        # The pods of a Deployment repel the same pods, from many nodes.
        self._repulsions: dict[str, tuple[Repulsion, set[tuple[str, str]]]] = {}
        for repulsion in (
            repulsion
            for name, pods in on_node.items()
            for pod in pods
            for repulsion in repulsions(pod, labels.get(name, {}))
        ):
            covered = repr((repulsion.selector, repulsion.namespaces))
            _, places = self._repulsions.setdefault(covered, (repulsion, set()))
            places.add((repulsion.key, repulsion.value))
        gpus = claimed_gpus(observed.slices, observed.claims, observed.taint_rules)
        fits = nodes_of_cluster(cluster, plan(cluster, ""), observed.nodes, observed.pods, gpus)
        self._nodes = [self._node(fit, on_node.get(str(fit.labels.name), ())) for fit in fits]
        by_name = {str(node.fit.labels.name): node for node in self._nodes}
        for pod in observed.pods:
            node = by_name.get((pod.get("status") or {}).get("nominatedNodeName") or "")
            if node is not None and is_unscheduled(pod):
                self._admit(node, asking_pod(pod, cluster, self._around(pod)))

    def decide(self, raw: Mapping[str, Any]) -> Decision | None:
        """Decide for a pod, None if it waits for no claim."""
        if lacks_claims(raw):
            return Decision(
                _name(raw), _priority(raw), reason="its claims have not been created yet"
            )
        pod = asking_pod(raw, self._cluster, self._around(raw))
        if not pod.claims and not self._kinds.keys() & pod.requests:
            return None
        name, priority = _name(raw), _priority(raw)
        unclear = self._unclear(raw, pod)
        if unclear:
            return Decision(name, priority, reason=unclear)
        claims = _claims_by_name(raw)
        if claims & self._decided_claims:
            # What it claims is what that pod gets.
            return Decision(name, priority, reason="a pod before it waits for the same claim")
        usage = usage_of_resources(pod.requests, self._kinds)
        refusal = self._quotas.refusal(pod.namespace, usage, {}) if usage else ""
        limited = pod.namespace if self._quotas.limits(pod.namespace) else ""
        policy = raw["spec"].get("preemptionPolicy")
        kept_away = self._kept_away(raw)
        alike = repr((replace(pod, namespace=limited, name=""), policy, sorted(kept_away)))
        if alike in self._no_node:
            return Decision(name, priority, reason=refusal or _NO_NODE)
        nodes = [
            node
            for node in self._nodes
            if not pod.selection.suits(node.fit.labels).problem
            and not repelled(pod.selection, node.fit.taints)
            and kept_away.isdisjoint(node.fit.labels.known.items())
        ]
        fitting = next((node for node in nodes if self._fits(node, pod, ())), None)
        if fitting is not None:
            self._admit(fitting, pod)
            self._decided_claims |= claims
            return Decision(
                name, priority, str(fitting.fit.labels.name), reason="it fits without victims"
            )
        if raw["spec"].get("preemptionPolicy") == "Never":
            return Decision(name, priority, reason="its preemptionPolicy is Never")
        sets = min(_MAX_SETS, max(_MIN_SETS, _MAX_SETS_IN_ALL // max(1, len(nodes))))
        options: list[tuple[Sequence[_RunningPod], _Node]] = []
        for node in nodes:
            if options and time.monotonic() > self._ends:
                break  # Costlier victims in time are better than the best ones too late.
            victims = self._victims(node, pod, priority, sets)
            if victims is not None:
                options.append((victims, node))
        if not options:
            self._no_node.add(alike)
            return Decision(name, priority, reason=refusal or _NO_NODE)
        # Of those that cost the same, the youngest.
        options.sort(key=lambda option: min(victim.created for victim in option[0]), reverse=True)
        victims, node = min(options, key=lambda option: _cost(option[0]))
        for victim in victims:
            self._gone.add(victim.name)
            for budget in victim.budgets:
                self._budgets[budget] -= 1
        self._admit(node, pod)
        self._decided_claims |= claims
        names = tuple(sorted(victim.name for victim in victims))
        return Decision(name, priority, str(node.fit.labels.name), names)

    def _admit(self, node: _Node, pod: AskingPod) -> None:
        node.guests.append(pod)
        self._quotas.charge(pod.namespace, self._usage(node, pod))

    def _usage(self, node: _Node, pod: AskingPod) -> Usage:
        """Return what the claim counts for that a pod would get for its requests on a node."""
        served = served_by_claims(node.fit, pod, self._kinds)
        kinds = {name: self._kinds[name] for name in served}
        return usage_of_resources(pod.requests, kinds)

    def _is_refused_claim(self, node: _Node, pod: AskingPod, gone: set[PodName]) -> bool:
        """Return whether a quota refuses the claim for a pod's requests when pods have gone.

        Their own claims go with them, wherever they run.
        """
        if not self._quotas.limits(pod.namespace):
            return False
        usage = self._usage(node, pod)
        # Adding up what is freed takes long where a namespace has thousands of claims.
        if not usage or not self._quotas.refusal(pod.namespace, usage, {}):
            return False
        freed: Counter[str] = Counter()
        for claim, pods in self._own_claims.get(pod.namespace, ()):
            if pods <= gone:
                freed.update(claim)
        return bool(self._quotas.refusal(pod.namespace, usage, freed))

    def _victims(
        self, node: _Node, pod: AskingPod, priority: int, max_sets: int
    ) -> Sequence[_RunningPod] | None:
        """Return the pods of a node that have to go, None if a pod gets no room there."""
        lower = [
            lower_pod
            for lower_pod in node.pods
            if lower_pod.priority < priority
            and lower_pod.name not in self._gone
            and self._within([lower_pod])
        ]
        if not lower or not self._fits(node, pod, lower):
            return None
        victims = lower
        for lower_pod in sorted(lower, key=lambda other: (-other.priority, other.created)):
            rest = [victim for victim in victims if victim is not lower_pod]
            if self._fits(node, pod, rest):
                victims = rest
        best = victims if self._within(victims) else None
        young = sorted(lower, key=lambda lower_pod: lower_pod.created, reverse=True)
        sets = (
            chosen
            for number in range(1, len(victims) + 1)
            for chosen in combinations(young, number)
        )
        for chosen in islice(sets, max_sets):
            cheaper = best is None or _cost(chosen) < _cost(best)
            if cheaper and self._within(chosen) and self._fits(node, pod, chosen):
                best = list(chosen)
        return best

    def _within(self, victims: Sequence[_RunningPod]) -> bool:
        """Return whether the disruption budgets let all of them be evicted.

        The API server evicts no pod that two of them are about.
        """
        if any(len(victim.budgets) > 1 for victim in victims):
            return False
        used = Counter(budget for victim in victims for budget in victim.budgets)
        return all(number <= self._budgets[budget] for budget, number in used.items())

    def _fits(self, node: _Node, pod: AskingPod, victims: Sequence[_RunningPod]) -> bool:
        """Return whether a node has room for a pod beside its guests, without some pods.

        A guest of a lower priority, which the scheduler may keep it for, counts for nothing.
        """
        gone = self._gone | {victim.name for victim in victims}
        if self._is_refused_claim(node, pod, gone):
            return False
        room = self._room(node, gone)
        guests = (guest for guest in node.guests if guest.priority >= pod.priority)
        return not any(
            isinstance(room.take(occupant, self._kinds), Shortage) for occupant in (*guests, pod)
        )

    def _room(self, node: _Node, gone: set[PodName]) -> Room:
        released = {claim for claim, pods in node.holders.items() if pods <= gone}
        left = [pod for pod in node.pods if pod.name not in gone]
        used = sum_of(pod.requests for pod in left)
        gpus = tuple(without_claims(gpu, released) for gpu in node.fit.gpus)
        return room_of(replace(node.fit, gpus=gpus, used=used, pods=len(left)))

    def _node(self, fit: FitNode, pods: Iterable[Mapping[str, Any]]) -> _Node:
        running = [
            _RunningPod(
                _name(pod),
                # Only the kubelet ends a static pod.
                _STAYS if MIRROR in (pod["metadata"].get("annotations") or {}) else _priority(pod),
                _created(pod),
                pod_requests(pod["spec"]),
                self._budgets_of(pod),
            )
            for pod in pods
        ]
        names = {running_pod.name for running_pod in running}
        holders = {claim: held for claim, held in self._holders.items() if held <= names}
        return _Node(fit, running, holders)

    def _budgets_of(self, pod: Mapping[str, Any]) -> tuple[int, ...]:
        meta = pod["metadata"]
        return tuple(
            number
            for number, budget in enumerate(self._observed.budgets)
            if budget["metadata"]["namespace"] == meta["namespace"]
            and selects(budget["spec"].get("selector"), meta.get("labels") or {})
        )

    def _unclear(self, raw: Mapping[str, Any], pod: AskingPod) -> str:
        """Return why it is not known which node would take a pod, "" if it is."""
        if any(
            (claim.get("status") or {}).get("allocation")
            for claim in self._observed.claims
            if is_claim_of(claim, raw)
        ):
            return "a claim of it has its devices already"
        nominated = (raw.get("status") or {}).get("nominatedNodeName")
        if nominated:
            return f"the scheduler makes room for it on {nominated}"
        unread = [note for note in pod.notes if note.startswith("not looked at")]
        return "; ".join(filter(None, (pod.held_back, *pod.unread, *pod.narrowed, *unread)))

    def _kept_away(self, raw: Mapping[str, Any]) -> set[tuple[str, str]]:
        """Return the labels of nodes where a pod that runs wants none like this one.

        One that is evicted for it counts, too: whom it would repel after that is not looked at.
        """
        repelled_from = (
            places for repulsion, places in self._repulsions.values() if repulsion.covers(raw)
        )
        return set().union(*repelled_from)

    def _around(self, raw: Mapping[str, Any]) -> Around:
        """Return the claims of a pod; one that was made of a template stands for the template."""
        namespace = raw["metadata"]["namespace"]
        claims = {
            (namespace, claim["metadata"]["name"]): claim["spec"]
            for claim in self._observed.claims
            if claim["metadata"]["namespace"] == namespace
        }
        templates = {}
        claim_names = {
            status["name"]: status.get("resourceClaimName")
            for status in (raw.get("status") or {}).get("resourceClaimStatuses") or ()
        }
        for entry in raw["spec"].get("resourceClaims") or ():
            claim = claims.get((namespace, str(claim_names.get(entry["name"]))))
            if entry.get("resourceClaimTemplateName") and claim is not None:
                templates[namespace, entry["resourceClaimTemplateName"]] = claim
        return Around({}, {}, 0, claims, templates)


def _cost(victims: Sequence[_RunningPod]) -> tuple[int, int]:
    """Return what victims cost: the highest of their priorities, then how many and how high."""
    priorities = [victim.priority for victim in victims]
    return max(priorities), sum(priority + _POD for priority in priorities)


def _claims_by_name(pod: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the claims of a pod that other pods can name, too."""
    namespace = pod["metadata"]["namespace"]
    return {
        (namespace, entry["resourceClaimName"])
        for entry in pod["spec"].get("resourceClaims") or ()
        if entry.get("resourceClaimName")
    }


def _runs(pod: Mapping[str, Any]) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    return bool(pod["spec"].get("nodeName")) and phase not in _ENDED


def _reserved_for(claim: Mapping[str, Any]) -> tuple[tuple[str, str], frozenset[PodName]]:
    meta = claim["metadata"]
    pods = (claim.get("status") or {}).get("reservedFor") or ()
    names = (PodName(meta["namespace"], pod["name"], pod["uid"]) for pod in pods)
    return (meta["namespace"], meta["name"]), frozenset(names)


def _allowed(budget: Mapping[str, Any]) -> int:
    """Return how many pods a budget lets go; none while its controller has not looked at it."""
    status = budget.get("status") or {}
    current = status.get("observedGeneration", 0) >= budget["metadata"].get("generation", 0)
    return int(status.get("disruptionsAllowed") or 0) if current else 0


def _name(pod: Mapping[str, Any]) -> PodName:
    meta = pod["metadata"]
    return PodName(meta["namespace"], meta["name"], meta["uid"])


def _priority(pod: Mapping[str, Any]) -> int:
    return int(pod["spec"].get("priority") or 0)


def _created(pod: Mapping[str, Any]) -> str:
    return str(pod["metadata"].get("creationTimestamp") or "")
