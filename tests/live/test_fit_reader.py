"""What `divvy fit --live` makes of devices that other drivers serve beside Divvy's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from divvy.live.fit_reader import FitReader
from divvy.model import parse_cluster
from divvy.plan.fit import PodsFit, fit
from divvy.plan.fit.manifest_kinds import Document
from divvy.plan.fit.manifests import read_manifests
from tests.plan.claimed import slices

GPU = "nvidia.com/gpu"
OURS = {"app.kubernetes.io/name": "divvy"}
NVIDIAS = {"metadata": {"name": "n"}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "c"}}
CLUSTER = parse_cluster(
    {
        "profiles": {"by-size": {"claims": {"shares": {}}}, "whole": {}},
        "pools": {
            "a": {"profile": "by-size", "select": {"pool": "a"}},
            "b": {"profile": "whole", "select": {"pool": "b"}},
        },
        "names": {"classes": "nvidia"},
    }
)


def device_class(name: str, created: int, resource: str | None, **labels: str) -> dict[str, Any]:
    at = f"2026-11-{created:02}T00:00:00Z"
    spec = {} if resource is None else {"extendedResourceName": resource}
    return {"metadata": {"name": name, "creationTimestamp": at, "labels": labels}, "spec": spec}


OWN = [device_class("divvy-gpu", 2, GPU, **OURS), device_class("gpu.nvidia.com", 2, None, **OURS)]


class Reader:
    """A cluster with one GPU for claims on a, and what a test has beside it."""

    def __init__(self, *objects: dict[str, Any], on_plugin: int = 0, unread: str = "") -> None:
        self._objects, self._unread = objects, unread
        self._nodes = [
            {
                "metadata": {"name": name, "labels": {"pool": name}},
                "spec": {},
                "status": {"allocatable": {"pods": "9", **resources}},
            }
            for name, resources in (("a", {}), ("b", {GPU: str(on_plugin)}), ("c", {}))
        ]

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def unread(self, resource: str) -> tuple[str, ...]:
        return ("odd",) if resource == self._unread else ()

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        resource = path.rpartition("/")[2]
        own = [obj for obj in self._objects if "driver" in obj["spec"]]
        classes = [obj for obj in self._objects if "driver" not in obj["spec"]]
        return iter(
            {
                "nodes": self._nodes,
                "resourceslices": [*slices("a", {"shares": {}}, gpus=1), *own],
                "deviceclasses": classes,
            }.get(resource, [])
        )

    def listed(self, path: str) -> list[dict[str, Any]]:
        return list(self.paged(path))


def claiming(device_class: str, name: str = "one") -> list[dict[str, Any]]:
    """Return a template of a claim, and a pod with it."""
    requests = [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]
    template = {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    entry = {"name": "g", "resourceClaimTemplateName": "t"}
    containers = [{"name": "main", "image": "app"}]
    spec = {"containers": containers, "resourceClaims": [entry]}
    return [template, {"kind": "Pod", "metadata": {"name": name}, "spec": spec}]


def asking(resource: str = GPU, name: str = "one") -> dict[str, Any]:
    containers = [{"name": "main", "image": "app", "resources": {"limits": {resource: 1}}}]
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": containers}}


def fitted(reader: Reader, *manifests: dict[str, Any]) -> tuple[PodsFit, ...]:
    everything = FitReader(reader, CLUSTER)  # type: ignore[arg-type]
    documents = [Document(f"document {at}", manifest) for at, manifest in enumerate(manifests)]
    pods = read_manifests(documents, CLUSTER, everything.around).pods
    nodes = everything.nodes("prod")
    return fit(CLUSTER, "prod", nodes, pods, everything.quotas, everything.unread()).pods


@pytest.mark.parametrize("by_name", [False, True])
def test_does_not_know_what_nvidias_driver_has_free(*, by_name: bool) -> None:
    """A claim of its class may be served on its nodes: the others hold what there is here."""
    name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
    pods = (
        [asking(name), asking(name, "two")]
        if by_name
        else [*claiming("gpu.nvidia.com"), claiming("gpu.nvidia.com", "two")[1]]
    )
    first, second = fitted(Reader(*OWN, NVIDIAS), *pods)
    assert (first.fitting, second.unknown) == (1, 1)
    assert "what NVIDIA's driver has free on c is not counted" in second.reason
    first, second = fitted(Reader(*OWN), *pods)
    assert (first.fitting, second.left) == (1, 1)
    first, second = fitted(Reader(*OWN, NVIDIAS), *claiming("divvy-gpu"), asking(name="two"))
    assert (first.fitting, second.left) == (1, 1)


@pytest.mark.parametrize(("created", "fits"), [(1, True), (3, False)])
def test_serves_a_resource_from_the_class_that_was_created_last(
    created: int, *, fits: bool
) -> None:
    rival = device_class("gpu.example.com", created, GPU)
    (result,) = fitted(Reader(rival, *OWN), asking())
    assert (result.fitting, result.unknown) == ((1, 0) if fits else (0, 1))
    if not fits:
        assert "what the DeviceClass gpu.example.com has free is not counted" in result.reason
    # The device plugin's are still its own.
    (result,) = fitted(Reader(rival, *OWN, on_plugin=1), asking())
    assert (result.fitting, result.unknown) == (1, 0)


def test_does_not_know_what_a_class_selects_that_is_not_divvys() -> None:
    theirs = device_class("gpu.nvidia.com", 1, None)
    (result,) = fitted(Reader(OWN[0], theirs), *claiming("gpu.nvidia.com"))
    assert result.unknown == 1
    assert "the DeviceClass gpu.nvidia.com, which is not Divvy's" in result.reason


def test_does_not_know_what_a_class_serves_that_cannot_be_read() -> None:
    (result,) = fitted(Reader(*OWN, unread="deviceclasses"), asking())
    assert result.unknown == 1
    assert "DeviceClass odd cannot be read" in result.reason
