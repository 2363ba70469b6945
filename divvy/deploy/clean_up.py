"""Gives nodes back as they were: a last run of the agent's image, and what agents wrote to Nodes.

After Helm has removed the agents:

1. pods are waited for: an agent that still ends writes its node's status once more;
2. labels and annotations that an agent has written, and nobody else, are removed from the Nodes;
3. a DaemonSet runs ``divvy.agent.clean_up`` where the agents ran, and its log says what stays;
4. the DaemonSet is deleted.

A run that is killed meanwhile leaves the DaemonSet: the next ``divvy destroy`` goes on with it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from divvy.deploy.other_agents import AGENTS
from divvy.deploy.ready import ready_since
from divvy.kube.client import Client
from divvy.kube.errors import CONFLICT, NOT_FOUND, ApiError, KubeError
from divvy.kube.kind import NODE, POD, kind_named
from divvy.kube.media_types import MERGE_PATCH
from divvy.model import Cluster
from divvy.model.api_names import (
    AGENT,
    CLEANED_HOST,
    CONFORMANCE_SUCCESS,
    LEFT,
    OWNED_ANNOTATIONS,
    OWNED_LABELS,
    VERIFY_ANNOTATION,
)
from divvy.model.phrases import some
from divvy.model.problems import printable

NAME = "divvy-clean-up"
_LABELS = {"app.kubernetes.io/name": "divvy", "app.kubernetes.io/component": "clean-up"}
_SELECTOR = ",".join(f"{key}={value}" for key, value in _LABELS.items())
_DAEMON_SET = kind_named("apps/v1", "DaemonSet")
_RELEASED = "app.kubernetes.io/name=divvy,app.kubernetes.io/component!=clean-up"
_AGENTS_UNKNOWN = (
    "files of agents may be left on nodes: no agents were there any more that say on which. "
    "`divvy up`, then `divvy destroy` removes them"
)
_AGENTS_MANAGER = "divvy-agent"
_ANNOTATIONS = (*OWNED_ANNOTATIONS, VERIFY_ANNOTATION, CONFORMANCE_SUCCESS)
_FOLDERS = {"host-lib": "/var/lib", "host-run": "/run"}
_SECONDS, _LOOK_SECONDS = 60.0, 0.5
_AT_ONCE = 8


class CleanUp:
    """The nodes of one namespace's agents; made before these are removed.

    ``report`` hears what is waited for.
    """

    def __init__(self, client: Client, namespace: str, report: Callable[[str], None]) -> None:
        self._client = client
        self._namespace = namespace
        self._report = report
        self._unread: dict[str, None] = {}
        agent = client.find(_DAEMON_SET.path(namespace, AGENT))
        self._desired = None if agent is None else clean_up_pods(agent)
        self._nodes = {str(pod["spec"].get("nodeName") or "") for pod in self._pods(AGENTS)} - {""}

    def run(self) -> list[str]:
        """Clean the nodes; return what stays on them, one sentence for each."""
        left = clean_nodes(self._client)
        try:
            left += self._clean_files()
        except ApiError as refusal:
            left.append(f"the agents' files stay on the nodes: {refusal}")
        return left + [f"pod {name} cannot be read: its node is not known" for name in self._unread]

    def until_pods_have_ended(self) -> list[str]:
        """Wait for pods of what was removed; return what is to be known of those that go on.

        On a node that is down they never end: the other nodes are cleaned all the same.
        """
        if self._until(lambda: not self._pods(_RELEASED), "pods to end"):
            return []
        names = sorted(pod["metadata"]["name"] for pod in self._pods(_RELEASED))
        return [f"pods have not ended, and may write to their nodes again: {some(names)}"]

    def _clean_files(self) -> list[str]:
        path = _DAEMON_SET.path(self._namespace, NAME)
        live = self._client.find(path)
        if live is None:
            if self._desired is None:
                return [_AGENTS_UNKNOWN]
            if not self._nodes:
                return []
            self._client.request("POST", _DAEMON_SET.path(self._namespace), self._desired)
        else:  # of a run that was killed
            self._nodes |= {str(pod["spec"].get("nodeName")) for pod in self._pods(_SELECTOR)}
        try:
            self._until(lambda: not self._unfinished(), "the nodes to be cleaned up")
            left = list(self._logged())
            unfinished = self._unfinished()
        finally:
            self._delete(path)
        return left + [f"node {node}: not cleaned up: {why}" for node, why in unfinished.items()]

    def _unfinished(self) -> dict[str, str]:
        """Return nodes that are not done yet, and why."""
        why = dict.fromkeys(sorted(self._nodes), "no pod runs there")
        for pod in self._pods(_SELECTOR):
            node = str(pod["spec"].get("nodeName"))
            why[node] = f"pod {pod['metadata']['name']} is not done"
            if ready_since(pod) is not None:
                del why[node]
        return why

    def _logged(self) -> Iterator[str]:
        for pod in self._pods(_SELECTOR):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            try:
                log = self._client.text(f"{POD.path(self._namespace, name)}/log", 5)
            except KubeError as error:
                yield f"node {node}: what stays is not known: {error}"
                continue
            for line in log.splitlines():
                if line.startswith(LEFT):
                    yield f"node {node}: {printable(line.removeprefix(LEFT))}"

    def _delete(self, path: str) -> None:
        try:
            self._client.request("DELETE", path, {"propagationPolicy": "Foreground"})
        except ApiError as error:
            if error.code not in (NOT_FOUND, CONFLICT):
                raise

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        query = {"labelSelector": selector}
        pages = self._client.pages(POD.path(self._namespace), query)
        pods = []
        for page in pages:
            self._unread |= dict.fromkeys(page.skipped)
            pods += page.items
        return pods

    def _until(self, is_done: Callable[[], bool], what: str) -> bool:
        """Wait a bounded time; return whether it is done."""
        deadline = time.monotonic() + _SECONDS
        is_reported = False
        while not is_done():
            if time.monotonic() > deadline:
                return False
            if not is_reported:
                self._report(f"waiting up to {_SECONDS:.0f} s for {what}")
                is_reported = True
            time.sleep(_LOOK_SECONDS)
        return True


def clean_up_pods(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the DaemonSet that cleans up where an agent's DaemonSet runs."""
    pod = agent["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = [
        {
            "name": name,
            "mountPath": f"{CLEANED_HOST}{path}",
            # Below /run, what is unmounted here is unmounted on the host.
            "mountPropagation": "Bidirectional",
        }
        for name, path in _FOLDERS.items()
    ]
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in _FOLDERS.items()]
    own = {
        key: pod[key]
        for key in ("priorityClassName", "affinity", "tolerations", "imagePullSecrets")
        if key in pod
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": NAME, "labels": _LABELS},
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "template": {
                "metadata": {"labels": _LABELS},
                "spec": {
                    **own,
                    # It needs no rights, and the agent's account is gone.
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 1,
                    "volumes": [*pod["volumes"], *volumes],
                    "containers": [
                        {
                            **container,
                            "name": "clean-up",
                            "command": ["python3", "-m", "divvy.agent.clean_up"],
                            "volumeMounts": [*container["volumeMounts"], *mounts],
                        }
                    ],
                },
            },
        },
    }


def clean_nodes(client: Client) -> list[str]:
    """Remove from all Nodes what agents and `divvy verify` wrote; return what could not be."""
    left, names = [], []
    for page in client.pages(NODE.path("")):
        left += [f"node {name}: its labels are not known" for name in page.skipped]
        names += [node["metadata"]["name"] for node in page.items if any(_ours(node))]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        left += filter(None, pool.map(partial(_clean_node, client), names))
    return left


def _clean_node(client: Client, name: str) -> str:
    """Remove from a Node what Divvy wrote; return why that could not be, "" if it could."""
    path = NODE.path("", name)
    try:
        labels, annotations = written(client.get(path))  # a list does not say who wrote what
        gone = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(annotations)}
        client.request("PATCH", path, {"metadata": gone}, kind=MERGE_PATCH)
    except ApiError as error:
        return "" if error.code == NOT_FOUND else f"node {name}: labels and annotations: {error}"
    return ""


def stays(cluster: Cluster) -> list[str]:
    """Return what of a cluster's stack nothing takes away, because pods or the host need it."""
    rules = [rule for profile in cluster.profiles.values() for rule in profile.rules]
    left = []
    if any(rule.mig for rule in rules):
        left.append("MIG instances on the GPUs: nvidia-smi mig -dci, -dgi, -mig 0")
    if any(pool.runtime and pool.runtime.configure for pool in cluster.pools.values()):
        left.append(
            "the container runtime's 90-divvy file below /etc/containerd/conf.d or "
            "/etc/crio/crio.conf.d: remove it and restart the runtime"
        )
    if cluster.claims:
        left.append(
            "ResourceClaimTemplates of pods with claims by size: kubectl delete "
            "resourceclaimtemplates -A -l "
            "app.kubernetes.io/name=divvy,app.kubernetes.io/component=claims"
        )
    return left


def written(node: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return labels and annotations of a Node that Divvy wrote and no other program writes, too."""
    entries = node["metadata"].get("managedFields") or ()
    others = set(_keys((entry for entry in entries if not _is_agents(entry)), "f:labels"))
    of_agent = set(_keys((entry for entry in entries if _is_agents(entry)), "f:labels"))
    labels, annotations = _ours(node)
    return [key for key in labels if key in of_agent - others], annotations


def _ours(node: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return labels and annotations of a Node by the names that Divvy writes."""
    metadata = node["metadata"]
    labels = [key for key in metadata.get("labels") or () if re.fullmatch(OWNED_LABELS, key)]
    annotations = [key for key in metadata.get("annotations") or () if key in _ANNOTATIONS]
    return sorted(labels), sorted(annotations)


def _is_agents(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == _AGENTS_MANAGER


def _keys(entries: Iterable[Mapping[str, Any]], kind: str) -> Iterator[str]:
    for entry in entries:
        fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get(kind) or {}
        yield from (key.removeprefix("f:") for key in fields if key != ".")
