"""What is missing in the cluster of what the program renders, or is not rolled out."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.observe.installed import (
    Installation,
    InstalledObject,
    Part,
    expected_image,
    judged,
    part_of,
)
from conformance.skips import CheckSkipped, NotApplicable
from divvy.model import PluginImage, parse_document
from divvy.render.objects.cluster import objects
from tests.conformance.fake_api import refusal

FILE: dict[str, Any] = {
    "profiles": {"whole": {}, "sizes": {"claims": {"shares": {}}}},
    "pools": {
        "p": {
            "select": {"pool": "p"},
            "hardware": {"model": "T4", "gpus": 1, "count": 2},
            "profile": "whole",
            "runtime": {"name": "containerd", "configure": True},
        },
        "q": {
            "select": {"pool": "q"},
            "hardware": {"model": "L40S", "gpus": 1, "count": 1},
            "profile": "sizes",
        },
    },
}
IMAGE = "r:5000/divvy/agent@sha256:1"
RENDERED = objects(parse_document(FILE), IMAGE)
Change = Callable[[dict[str, Any]], None]


def as_kept(rendered: dict[str, Any]) -> dict[str, Any]:
    """Return an object as the API server keeps it: with defaults, and a status."""
    live = copy.deepcopy(rendered)
    live["metadata"] |= {"uid": "u", "generation": 3, "managedFields": [{}]}
    if rendered["kind"] in ("DaemonSet", "Deployment"):
        live["spec"]["revisionHistoryLimit"] = 10
        live["spec"]["template"]["spec"]["dnsPolicy"] = "ClusterFirst"
        live["status"] = {"observedGeneration": 3, "updatedReplicas": 1, "availableReplicas": 1,
            "desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": 3}  # fmt: skip
    return live


def problems(part: Part, name: str, change: Change | None, unready: int = 0) -> str:
    """Return what is said of a part after one of its objects was changed, or taken away."""
    installed = []
    for rendered in RENDERED:
        if part_of(rendered) is not part:
            continue
        live: dict[str, Any] | None = as_kept(rendered)
        if f"{rendered['kind']} {rendered['metadata']['name']}" == name:
            if change is None:
                live = None
            else:
                assert live is not None
                change(live)
        installed.append(InstalledObject(rendered, live))
    expected, actual = judged(installed, unready)
    return "" if expected == actual else actual


@pytest.mark.parametrize("part", [part for part in Part if part is not Part.OBSERVABILITY])
def test_finds_nothing_wrong_in_what_the_api_server_keeps(part: Part) -> None:
    assert problems(part, "", None) == ""


def _image(live: dict[str, Any]) -> None:
    live["spec"]["template"]["spec"]["containers"][0]["image"] = "other"


def _status(**numbers: int) -> Change:
    return lambda live: live["status"].update(numbers)


def _stopped(live: dict[str, Any]) -> None:
    live["spec"]["replicas"] = 0


def _rules(live: dict[str, Any]) -> None:
    del live["rules"][0]


def _leaving(live: dict[str, Any]) -> None:
    live["metadata"]["deletionTimestamp"] = "now"


def _audit(live: dict[str, Any]) -> None:
    live["spec"]["validationActions"] = ["Audit"]


@pytest.mark.parametrize(
    ("part", "name", "change", "words"),
    [
        (Part.AGENTS, "DaemonSet divvy-agent", None, "is missing"),
        (Part.AGENTS, "DaemonSet divvy-agent", _image, f"is other, not {IMAGE}"),
        (Part.AGENTS, "DaemonSet divvy-agent", _status(updatedNumberScheduled=0), "in 0 of 3 pods"),
        (Part.AGENTS, "DaemonSet divvy-agent", _status(numberReady=1), "1 of 3 pods are ready"),
        (Part.AGENTS, "DaemonSet divvy-agent", _status(observedGeneration=2), "not taken up"),
        (Part.AGENTS, "ClusterRoleBinding divvy-system-divvy-agent", None, "is missing"),
        (Part.AGENTS, "ClusterRole divvy-system-divvy-agent", _rules, "rules has 3 entries, not 4"),
        (Part.AGENTS, "Service divvy-agent", _leaving, "is being deleted"),
        (Part.CONFIGURATION, "ConfigMap divvy", None, "is missing"),
        (Part.CONFIGURATION, "ConfigMap divvy", lambda live: live.update(data={}), "cluster.json"),
        (Part.POLICIES, "ValidatingAdmissionPolicyBinding divvy-system-divvy-agent", None,
         "ValidatingAdmissionPolicyBinding divvy-system-divvy-agent is missing"),
        (Part.POLICIES, "MutatingAdmissionPolicyBinding divvy-sized-limits", None, "is missing"),
        (Part.POLICIES, "ValidatingAdmissionPolicyBinding divvy-claims", _audit, "is Audit, not"),
        (Part.CLAIMS, "DeviceClass divvy-share", None, "DeviceClass divvy-share is missing"),
        (Part.CLAIMS, "Deployment divvy-claim-templates", _stopped, "spec.replicas is 0, not 1"),
        (Part.CLAIMS, "Deployment divvy-claim-templates", _status(availableReplicas=0),
         "0 of 1 pods are ready"),
        (Part.NODE_RUNTIME, "DaemonSet divvy-node-runtime-p", None, "is missing"),
    ],
)  # fmt: skip
def test_names_what_differs_from_what_this_program_writes(
    part: Part, name: str, change: Change | None, words: str
) -> None:
    message = problems(part, name, change)
    assert name in message
    assert words in message


def test_expects_no_pod_on_nodes_that_can_run_none() -> None:
    change = _status(updatedNumberScheduled=2, numberReady=2)
    assert problems(Part.AGENTS, "DaemonSet divvy-agent", change, unready=1) == ""
    assert problems(Part.AGENTS, "DaemonSet divvy-agent", change) != ""


def test_accepts_the_live_image_if_built_and_by_digest() -> None:
    built = PluginImage(registry="r:5000", base="b")
    assert expected_image(built, IMAGE) == (IMAGE, "")
    assert (
        "its image is r:5000/divvy/agent:latest, not r:5000/divvy/agent@sha256:"
        in (expected_image(built, "r:5000/divvy/agent:latest")[1])
    )
    named = PluginImage(reference=f"r/a@sha256:{'2' * 64}")
    assert expected_image(named, IMAGE) == (named.reference, "")


class Refusing:
    """An API server that lets an account read DaemonSets and nothing else."""

    def get(self, kind: Any, _name: str, _namespace: str | None = None) -> Any:
        if kind.kind != "DaemonSet":
            raise refusal(403, "no such right")
        (agents,) = [obj for obj in RENDERED if obj["metadata"]["name"] == "divvy-agent"
                     and obj["kind"] == "DaemonSet"]  # fmt: skip
        return as_kept(agents)


def target_at(api: object) -> Any:
    document = parse_document(FILE)
    return SimpleNamespace(
        api=api,
        document=document,
        cluster=document.cluster,
        unready={},
        generation="g",
        configuration="{}",
    )


def test_judges_nothing_without_the_right_to_read_what_is_installed() -> None:
    target = target_at(Refusing())
    with pytest.raises(CheckSkipped, match="may not read what is installed: no such right"):
        Installation(target).judge(Part.POLICIES)
    target.document = parse_document({**FILE, "profiles": {"whole": {}, "sizes": {}}})
    with pytest.raises(NotApplicable, match="the stack file asks for no claims"):
        Installation(target).judge(Part.CLAIMS)


class InstalledByHelm:
    """An API server with what a chart installs: its namespace is made by whoever called helm."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels

    def get(self, kind: Any, name: str, _namespace: str | None = None) -> Any:
        if kind.kind == "Namespace":
            return {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
        (rendered,) = [obj for obj in RENDERED if obj["metadata"]["name"] == name
                       and obj["kind"] == kind.kind]  # fmt: skip
        live = as_kept(rendered)
        live["metadata"]["labels"] = {**live["metadata"]["labels"], **self._labels}
        return live


def test_asks_nothing_of_a_namespace_that_helm_has_made() -> None:
    target = target_at(InstalledByHelm({"app.kubernetes.io/managed-by": "Helm"}))
    expected, actual = Installation(target).judge(Part.AGENTS)
    assert actual == expected
    target.api = InstalledByHelm({})
    assert "Namespace divvy-system: metadata.labels" in Installation(target).judge(Part.AGENTS)[1]
