"""Names of resources and labels within Kubernetes' limits."""

import pytest

from divvy.model.resource_names import (
    gpu_resource,
    label_key_error,
    label_value_error,
    mig_resource,
    qualified,
    resource_name_error,
)


def test_names_resources_as_the_vendors_plugin_does():
    assert gpu_resource() == "nvidia.com/gpu"
    assert gpu_resource(shared=True) == "nvidia.com/gpu.shared"
    assert mig_resource("2g.10gb") == "nvidia.com/mig-2g.10gb"
    assert mig_resource("1g.5gb+me", shared=True) == "nvidia.com/mig-1g.5gb.me.shared"
    assert qualified("gpu.x4") == "nvidia.com/gpu.x4"
    assert qualified("example.org/gpu") == "example.org/gpu"


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "rdma/hca", "a.b/" + "x" * 63])
def test_accepts_names_that_kubernetes_accepts(name):
    assert resource_name_error(name) is None


@pytest.mark.parametrize(
    "name",
    ["gpu", "a/b/c", "A.b/gpu", "kubernetes.io/gpu", "x.k8s.io/gpu", "a/" + "x" * 64, "a/-b", "a/"],
)
def test_refuses_names_that_kubernetes_refuses(name):
    assert resource_name_error(name)


def test_checks_label_keys_and_values():
    assert label_key_error("divvy.gpu/profile") is None
    assert label_key_error("a/") is not None
    assert label_value_error("") is None
    assert label_value_error("x" * 64) is not None
    assert label_value_error("a b") is not None
