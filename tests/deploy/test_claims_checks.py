"""What is refused while pods hold claims, before a run changes anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from divvy.deploy import claims_checks
from divvy.deploy.changes import ObjectName
from divvy.deploy.claims_checks import check_claims, warn_of_lost_classes
from divvy.errors import CommandError
from divvy.live.cluster_reader import NotAllowed
from divvy.model import Cluster, parse_cluster
from tests.plan.claimed import claim, slices

CLAIMS = {"profile": "by-size", "select": {"pool": "a"}}
GPU = "nvidia.com/gpu"
PROFILES: dict[str, Any] = {"by-size": {"claims": {"shares": {}}}, "whole": {}}
HELD = (
    "pods hold claims: team/notebook on b; on a node without a pool nothing returns their "
    "devices, and they stay Terminating: give the nodes a pool or its label, or end the pods "
    "before the pool goes"
)


class Reader:
    """A cluster with a node of the pool a and one of b, where a pod holds a share."""

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def unread(self, _: str) -> tuple[str, ...]:
        return ()

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        nodes = ({"metadata": {"name": name, "labels": {"pool": name}}} for name in ("a", "b"))
        return {
            "nodes": nodes,
            "deviceclasses": iter(self.classes),
            "resourceslices": iter([*slices("a", {"shares": {}}), *slices("b", {"shares": {}})]),
            "resourceclaims": iter([claim("notebook", "b", "gpu-b-0-share", "3000Mi", "30")]),
        }.get(path.rpartition("/")[2], iter(()))

    @property
    def classes(self) -> list[dict[str, Any]]:
        """Return Divvy's own class, and those of NVIDIA's driver as its chart has them."""
        named = {
            **{"divvy-gpu": GPU, "gpu.nvidia.com": GPU, "mig.nvidia.com": None},
            **{"gpu.example.com": GPU, "share.example.com": f"{GPU}.shared"},
        }
        return [
            {
                "metadata": {"name": name},
                "spec": {} if resource is None else {"extendedResourceName": resource},
            }
            for name, resource in named.items()
        ]

    def listed(self, path: str) -> list[dict[str, Any]]:
        return list(self.paged(path))

    def find(self, path: str) -> dict[str, Any]:
        assert path == "/version"
        return {"gitVersion": "v1.37.0"}


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def reading(*_: object) -> Iterator[Reader]:
        yield Reader()

    monkeypatch.setattr(claims_checks, "reading", reading)


def stack(pools: dict[str, Any]) -> Cluster:
    return parse_cluster({"profiles": PROFILES, "pools": pools})


def test_refuses_to_take_a_pool_from_nodes_whose_pods_hold_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    deleted = stack({"a": CLAIMS})
    with pytest.raises(CommandError) as refused:
        check_claims(deleted, preview=False)
    assert str(refused.value) == HELD
    check_claims(deleted, preview=True)
    assert capsys.readouterr().err.splitlines()[-1] == f"warning: {HELD}"


@pytest.mark.parametrize("profile", ["by-size", "whole"])
def test_lets_nodes_stay_in_a_pool(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Another profile waits until the pods have ended: an agent is there to give back."""
    pools = {"a": CLAIMS, "b": {"profile": profile, "select": {"pool": "b"}}}
    check_claims(stack(pools), preview=False)
    assert "hold claims" not in capsys.readouterr().err


def test_warns_of_another_drivers_class_for_the_same_resource(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kubernetes takes the younger of two classes, for all pods of the cluster."""

    def warnings(**names: str) -> list[str]:
        pools = {"a": CLAIMS, "b": {**CLAIMS, "select": {"pool": "b"}}}
        check_claims(
            parse_cluster({"profiles": PROFILES, "pools": pools, "names": names}), preview=True
        )
        return [line for line in capsys.readouterr().err.splitlines() if "DeviceClass" in line]

    shared = (
        "warning: pods that request nvidia.com/gpu.shared get devices of one DeviceClass alone, "
        "the one that was created last, and it is also the resource of share.example.com: leave "
        "extendedResourceName out there"
    )
    assert warnings() == [
        "warning: pods that request nvidia.com/gpu get devices of one DeviceClass alone, the one "
        "that was created last, and it is also the resource of gpu.nvidia.com, gpu.example.com: "
        "leave extendedResourceName out there, or give `names.gpu` another name",
        shared,
    ]
    assert warnings(gpu="example.com/gpu") == [shared]


def test_tells_who_may_not_read_the_classes_that_they_are_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_name: str) -> None:
        raise NotAllowed("deviceclasses", "forbidden")

    monkeypatch.setattr(Reader, "classes", property(lambda _: map(refuse, ["divvy-gpu"])))
    check_claims(stack({"a": CLAIMS, "b": {**CLAIMS, "select": {"pool": "b"}}}), preview=True)
    assert (
        "warning: it is not known whether other DeviceClasses name the same resources: this user "
        "may not read deviceclasses: forbidden"
    ) in capsys.readouterr().err


def test_warns_of_quotas_that_count_no_claims_of_nvidias_classes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where no profile has shares."""
    hard = {"requests.nvidia.com/gpu": "1", "limits.nvidia.com/gpumem": "9"}
    quota = {"metadata": {"namespace": "team", "name": "q"}, "spec": {"hard": hard}}

    class WithQuota(Reader):
        def paged(self, path: str) -> Iterator[dict[str, Any]]:
            return iter([quota]) if path.endswith("quotas") else super().paged(path)

    @contextmanager
    def reading(*_: object) -> Iterator[Reader]:
        yield WithQuota()

    monkeypatch.setattr(claims_checks, "reading", reading)
    value = {"profiles": {"p": {"claims": {}}}, "pools": {"all": {"profile": "p"}}}
    check_claims(parse_cluster(value), preview=True)
    assert "ResourceQuotas" not in capsys.readouterr().err
    check_claims(parse_cluster({**value, "names": {"classes": "nvidia"}}), preview=True)
    warning = capsys.readouterr().err
    assert "add to team (gpu.nvidia.com.deviceclass.resource.k8s.io/devices, mig" in warning
    assert "gpumem" not in warning


class ServedByNvidia(Reader):
    """A cluster where NVIDIA's driver serves some nodes, or nobody may know which."""

    def __init__(self, nodes: tuple[str, ...], unread: tuple[str, ...] = ()) -> None:
        self._nodes, self._unread = nodes, unread

    def unread(self, _: str) -> tuple[str, ...]:
        return self._unread

    def paged(self, path: str) -> Iterator[dict[str, Any]]:
        assert path.endswith("/resourceslices")
        if "secret" in self._nodes:
            raise NotAllowed("resourceslices", "no right")
        yield from ({"spec": {"driver": "divvy.gpu", "nodeName": "c"}},)
        for node in self._nodes:
            yield {"spec": {"driver": "gpu.nvidia.com", "nodeName": node}}


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (ServedByNvidia(("b", "a", "a")), "NVIDIA's driver still serves a, b: "),
        (ServedByNvidia(("secret",)), "whether NVIDIA's driver still serves nodes is not known"),
        (ServedByNvidia((), ("odd",)), "is not known (cannot be read: odd): "),
        (ServedByNvidia(()), ""),
    ],
)
def test_warns_where_the_classes_of_nvidias_driver_go(
    reader: Reader,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @contextmanager
    def reading(kubeconfig: str | None, context: str | None) -> Iterator[Reader]:
        # The stack file's: the record of what is deployed does not name a cluster.
        assert (kubeconfig, context) == ("theirs", "prod")
        yield reader

    monkeypatch.setattr(claims_checks, "reading", reading)
    cluster = parse_cluster(
        {"profiles": PROFILES, "pools": {"a": CLAIMS}, "kubeconfig": "theirs", "context": "prod"}
    )
    kept = [
        ObjectName("DeviceClass", "", "divvy-gpu", "resource.k8s.io/v1"),
        ObjectName("ConfigMap", "", "gpu.nvidia.com", "v1"),
    ]
    warn_of_lost_classes(cluster, kept)
    assert capsys.readouterr().err == ""
    nvidias = ObjectName("DeviceClass", "", "gpu.nvidia.com", "resource.k8s.io/v1")
    warn_of_lost_classes(cluster, [*kept, nvidias])
    warning = capsys.readouterr().err
    assert words in warning
    assert ("deletes the DeviceClasses gpu.nvidia.com, and" in warning) == bool(words)
