"""Reads what ``divvy fit`` needs of a cluster: nodes, pods, claims, priorities, quotas."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from divvy.live.advertised import live_node_of, with_claims
from divvy.live.cluster_reader import ClusterReader, NotAllowed
from divvy.live.live_diff import compare_live
from divvy.live.pending_pods import is_claim_of
from divvy.live.taint_rules import taint_rules
from divvy.model import Cluster
from divvy.model.api_names import is_divvys
from divvy.model.claim_status import is_allocated
from divvy.model.nvidia_claims import CLASSES, nvidias_nodes
from divvy.model.phrases import some
from divvy.model.pod_phase import UNFINISHED
from divvy.model.problems import printable
from divvy.plan import plan as predict
from divvy.plan.fit import FitNode, PodToFit, nodes_of_cluster
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.plan.fit.manifests import pod_of_cluster, unread_of_claims
from divvy.plan.fit.pods import Around, claims_by_name, unknown_pod
from divvy.plan.fit.readable import key_of, readable
from divvy.plan.fit.unread import Unread

_RESOURCES = "/apis/resource.k8s.io/v1"
# What pods refer to by name.
_NAMED = {
    "Namespace": "namespaces",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
}


def uncounted(
    slices: Iterable[Mapping[str, Any]], classes: Iterable[Mapping[str, Any]]
) -> Mapping[str, str]:
    """Return which devices of other drivers are not counted, by class and extended resource.

    Of several classes for a resource Kubernetes serves it from the one that was created last.
    """
    serving = {
        (device_class.get("spec") or {}).get("extendedResourceName", ""): device_class
        for device_class in sorted(classes, key=_created)
    }
    nodes = nvidias_nodes(slices)
    of_nvidia = f"what NVIDIA's driver has free on {some(nodes)} is not counted"
    return dict.fromkeys(CLASSES if nodes else (), of_nvidia) | {
        resource: f"what the DeviceClass {key_of(of)[1]} has free is not counted"
        for resource, of in serving.items()
        if not is_divvys(of)
    }


def _created(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")


class FitReader:
    """What one cluster has, each kind of object read once, where it is needed."""

    def __init__(self, reader: ClusterReader, cluster: Cluster) -> None:
        self._reader = reader
        self.cluster = cluster
        self._devices_left_out: dict[str, None] = {}

    def _leave_out(self, text: str) -> None:
        self._devices_left_out[printable(text)] = None
        self._reader.note(text)

    @cached_property
    def around(self) -> Around:
        """Return what decides about pods beside themselves."""
        namespaces = self._reader.listed("/api/v1/namespaces")
        classes = self._reader.listed("/apis/scheduling.k8s.io/v1/priorityclasses")
        templates = self._reader.listed(f"{_RESOURCES}/resourceclaimtemplates")
        defaults = [
            priority_class.get("value") or 0
            for priority_class in classes
            if priority_class.get("globalDefault")
        ]
        unread = {
            **dict(unread_of_claims("ResourceClaim", self._claims)),
            **dict(unread_of_claims("ResourceClaimTemplate", templates)),
        }
        for kind, resource in _NAMED.items():
            for name in self._reader.unread(resource):
                namespace, _, own_name = name.rpartition("/")
                unread[kind, namespace, own_name] = (f"its {kind}, which cannot be read",)
        return Around(
            {
                namespace["metadata"]["name"]: namespace["metadata"].get("labels") or {}
                for namespace in namespaces
            },
            {
                priority_class["metadata"]["name"]: priority_class.get("value") or 0
                for priority_class in classes
            },
            defaults[0] if defaults else 0,
            {key_of(claim): claim.get("spec") or {} for claim in self._claims},
            {key_of(template): template["spec"]["spec"] for template in templates},
            frozenset(self._shared()),
            unread,
            {key_of(of)[1]: frozenset() for of in self._classes if not is_divvys(of)},
        )

    def _shared(self) -> Iterator[tuple[str, str]]:
        """Yield the claims that have their devices already, or that several pods name."""
        yield from (key_of(claim) for claim in self._claims if is_allocated(claim))
        named = Counter(
            (pod["metadata"].get("namespace") or "", name)
            for pod in self._pods
            for name in claims_by_name(pod["spec"])
        )
        yield from (key for key, pods in named.items() if pods > 1)

    def pending(self) -> tuple[PodToFit, ...]:
        """Return the pods that wait for a node, the oldest first."""
        waiting = [
            pod
            for pod in self._pods
            if not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
        ]
        waiting.sort(key=lambda pod: (_created(pod), key_of(pod)))
        pods = [pod_of_cluster(pod, self.cluster, self.around) for pod in waiting]
        for name in self._reader.unread("pods"):
            namespace, _, own_name = name.rpartition("/")
            words = ["it cannot be read, and may wait for a node"]
            pods.append(unknown_pod("Pod", namespace, own_name, words))
        return tuple(pods)

    def claims_of(self, pod: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the claims that a pod names, or that were made for it."""
        return [claim for claim in self._claims if is_claim_of(claim, pod)]

    def nodes(self, name: str, without: Sequence[Mapping[str, Any]] = ()) -> tuple[FitNode, ...]:
        """Return the nodes with what is held of them, but by the claims ``without``."""
        claims = [claim for claim in self._claims if claim not in without]
        gpus = claimed_gpus(
            self._slices,
            claims,
            self._taint_rules,
            unread=self._reader.unread("resourceclaims"),
            note=self._leave_out,
        )
        return nodes_of_cluster(
            self.cluster, predict(self.cluster, name), self._nodes, self._pods, gpus
        )

    def unread(self) -> Unread:
        """Return what could not be read of all that was read until now."""
        unread = self._reader.unread
        return Unread(
            pods=unread("pods"),
            nodes=unread("nodes"),
            claims=unread("resourceclaims"),
            slices=unread("resourceslices"),
            taint_rules=unread("devicetaintrules"),
            quotas=unread("resourcequotas"),
            devices=tuple(self._devices_left_out),
            classes=unread("deviceclasses"),
            uncounted=uncounted(self._slices, self._classes),
        )

    @cached_property
    def quotas(self) -> list[dict[str, Any]]:
        """Return the ResourceQuotas, which can refuse claims."""
        return list(self._reader.paged("/api/v1/resourcequotas")) if self.cluster.claims else []

    def differences(self, name: str) -> tuple[str, ...]:
        """Return a note where nodes advertise other devices than the file says."""
        gpus = claimed_gpus(self._slices, (), note=self._reader.note)
        live = readable(self._nodes, live_node_of, self._reader.note)
        nodes = with_claims(live, gpus, self.cluster)
        compared = compare_live(self.cluster, name, nodes).nodes
        differing = [
            node_difference.node for node_difference in compared if node_difference.resources
        ]
        if not differing:
            return ()
        node_names = ", ".join(differing[:3]) + (" and others" if len(differing) > 3 else "")
        return (
            f"{node_names}: the nodes differ from the stack file; this result uses the nodes"
            f" (`divvy diff --live -s {name}`)",
        )

    @cached_property
    def _nodes(self) -> list[dict[str, Any]]:
        return list(self._reader.paged("/api/v1/nodes"))

    @cached_property
    def _pods(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"/api/v1/pods?{UNFINISHED}"))

    @cached_property
    def _claims(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceclaims"))

    @cached_property
    def _classes(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/deviceclasses"))

    @cached_property
    def _slices(self) -> list[dict[str, Any]]:
        return list(self._reader.paged(f"{_RESOURCES}/resourceslices"))

    @cached_property
    def _taint_rules(self) -> list[dict[str, Any]]:
        try:
            return taint_rules(self._reader, self._slices)
        except NotAllowed as refusal:
            self._devices_left_out[f"DeviceTaintRules are left out: {refusal}"] = None
            return []
