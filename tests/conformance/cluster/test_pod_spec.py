"""What a pod of the suite asks for, and which of its containers is ours."""

import pytest

from conformance.cluster.pod_spec import PodRequest, pod_spec
from conformance.cluster.pods import outcome_of


def test_gives_a_pod_few_rights_and_a_deadline() -> None:
    spec = pod_spec(
        PodRequest("n1", "image", ["true"], resource="nvidia.com/gpu"), "restricted", "low"
    )
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["activeDeadlineSeconds"]
    assert spec["priorityClassName"] == "low"
    assert "nodeName" not in spec


def test_keeps_the_program_of_an_image_from_elsewhere() -> None:
    container = pod_spec(PodRequest("n1", "image", arguments=["10"]), "restricted", "low")[
        "containers"
    ]
    assert "command" not in container[0]
    assert container[0]["args"] == ["10"]


@pytest.mark.parametrize("more", [{"resource": "nvidia.com/gpu"}, {"claim": "c"}])
def test_gives_the_device_to_the_container_beside_its_own(more: dict[str, str]) -> None:
    request = PodRequest("n1", "image", ["look"], beside=["hold"], **more)  # type: ignore[arg-type]
    own, holder = pod_spec(request, "restricted", "low")["containers"]
    assert (own["name"], own["command"], own["resources"]["limits"]) == (
        "main", ["look"], {"memory": "2Gi"}
    )  # fmt: skip
    assert "claims" not in own["resources"]
    assert holder["command"] == ["hold"]
    held = holder["resources"]["limits"].get("nvidia.com/gpu"), holder["resources"].get("claims")
    assert held == (("1", None) if "resource" in more else (None, [{"name": "gpu"}]))
    assert own["volumeMounts"] == holder["volumeMounts"]


def test_recognises_its_container_among_those_a_cluster_adds() -> None:
    sidecar = {"name": "proxy", "state": {"running": {}}}
    own = {"name": "main", "state": {"terminated": {"exitCode": 7}}}
    pod = {"status": {"phase": "Running", "containerStatuses": [sidecar, own]}}
    assert outcome_of(pod, "").code == 7


# Stands for a host with systemd; a service of K3s runs the kubelet there.


def test_mounts_node_folders_into_a_pod_that_inspects_its_node() -> None:
    request = PodRequest("n1", "image", ["look"], host_folders={"/driver-root": "/run/driver"})
    spec = pod_spec(request, "privileged", "low")
    (mount,) = spec["containers"][0]["volumeMounts"]
    (volume,) = spec["volumes"]
    assert mount == {"name": volume["name"], "mountPath": "/driver-root"}
    assert volume["hostPath"] == {"path": "/run/driver"}
