"""The paths of a kind that is known by its name."""

import pytest

from divvy.kube.kind import kind_named


@pytest.mark.parametrize(
    ("api_version", "kind", "namespace", "path"),
    [
        ("v1", "Namespace", "", "/api/v1/namespaces/x"),
        ("v1", "ConfigMap", "n", "/api/v1/namespaces/n/configmaps/x"),
        ("resource.k8s.io/v1", "DeviceClass", "", "/apis/resource.k8s.io/v1/deviceclasses/x"),
        (
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "n",
            "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/x",
        ),
    ],
)
def test_finds_the_path_of_a_kind_by_its_name_alone(
    api_version: str, kind: str, namespace: str, path: str
) -> None:
    assert kind_named(api_version, kind).path(namespace, "x") == path
