"""Claims that name attributes of other drivers get Divvy's devices from the stock scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.claims.device_attributes import gpu_attributes
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.model.nvidia_claims import CLASSES
from divvy.model.slice_specs import slice_specs
from tests.agent.claim_values import ON_DEMAND, offered_gpu
from tests.claim_templates.stock_scheduler import make_node, running_scheduler
from tests.claim_templates.test_maker_on_api_server import claims
from tests.render.documents import objects_of
from tests.render.objects.claims.api_server import ApiServer

pytestmark = pytest.mark.lab
NODE = "attributes-node"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
ROOTS = ("pci0000:3a", "pci0000:5d")
NVIDIA = "device.attributes['gpu.nvidia.com']"


@pytest.fixture
def scheduler(server: ApiServer, tmp_path: Path) -> Iterator[None]:
    """Run the stock scheduler, with a node of two A100 and a network card beside the second."""
    make_node(server, NODE)
    offered = [offered_gpu(index, ON_DEMAND) for index in range(2)]
    gpus = [
        Gpu(gpu.index, gpu.uuid, gpu.product, 40960, gpu.index, "", pcie_root=root)
        for gpu, root in zip(offered, ROOTS, strict=True)
    ]
    seen = gpu_attributes(Snapshot("550.163.01", (12, 4), tuple(gpus)))
    slices = slice_specs(NODE, offered, {}, {}, {}, seen)
    card = {"name": "card", "attributes": {PCIE_ROOT: {"string": ROOTS[1]}}}
    pool = {"name": NODE, "resourceSliceCount": 1}
    slices[f"{NODE}-nic"] = {
        **{"driver": "nic.example.com", "nodeName": NODE, "pool": pool, "devices": [card]}
    }
    for name, spec in slices.items():
        server.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
            }
        )
    selector = {"cel": {"expression": "device.driver == 'nic.example.com'"}}
    server.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "nic"},
            "spec": {"selectors": [selector]},
        }
    )
    with running_scheduler(server, tmp_path):
        yield
    for name in slices:
        server.send("DELETE", f"/apis/resource.k8s.io/v1/resourceslices/{name}")
    server.send("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/nic")
    server.send("DELETE", f"/api/v1/nodes/{NODE}")


@pytest.fixture
def nvidias_classes(server: ApiServer) -> None:
    value = {
        "profiles": {"own": {"claims": {}}},
        "pools": {"all": {"profile": "own"}},
        "names": {"classes": "nvidia"},
    }
    objects = objects_of(value, "image")
    server.apply(*(obj for obj in objects if obj["metadata"]["name"] in CLASSES))


def request(name: str, device_class: str, *conditions: str) -> dict[str, Any]:
    selectors = [{"cel": {"expression": condition}} for condition in conditions]
    return {"name": name, "exactly": {"deviceClassName": device_class, "selectors": selectors}}


def devices(
    server: ApiServer, namespace: str, alike: str, *requests: dict[str, Any]
) -> dict[str, str]:
    """Return the device that each request of a claim gets, all alike in an attribute."""
    constraints = [{"matchAttribute": alike}] if alike else []
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "own"},
        "spec": {"devices": {"requests": list(requests), "constraints": constraints}},
    }
    response = server.send("POST", path, claim)
    assert response.status == 201, response.body
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "own"},
        "spec": {
            "containers": [
                {"name": "main", "image": "x", "resources": {"claims": [{"name": "c"}]}}
            ],
            "resourceClaims": [{"name": "c", "resourceClaimName": "own"}],
        },
    }
    response = server.send("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert response.status == 201, response.body

    def results() -> list[dict[str, Any]]:
        (claim_now,) = claims(server, namespace)
        allocation = claim_now.get("status", {}).get("allocation", {})
        return list(allocation.get("devices", {}).get("results", ()))

    server.until(lambda: bool(results()))
    return {result["request"]: result["device"] for result in results()}


@pytest.mark.usefixtures("scheduler")
def test_publishes_one_pcie_root_for_a_gpu_and_a_network_card(
    server: ApiServer, namespace: str
) -> None:
    requests = request("gpu", "divvy-gpu"), request("card", "nic")
    assert devices(server, namespace, PCIE_ROOT, *requests) == {"gpu": "gpu-1", "card": "card"}


@pytest.mark.usefixtures("scheduler")
def test_serves_a_claim_for_nvidias_driver_under_another_class(
    server: ApiServer, namespace: str
) -> None:
    """The claims of NVIDIA's documentation, with divvy-gpu and divvy-mig for its classes."""
    by_request = devices(
        server,
        namespace,
        "gpu.nvidia.com/parentUUID",
        request("small", "divvy-mig", f"{NVIDIA}.profile == '1g.5gb'"),
        request("medium", "divvy-mig", f"{NVIDIA}.profile == '2g.10gb'"),
    )
    assert by_request["small"].startswith("gpu-0-mig-1g5gb-")
    assert by_request["medium"].startswith("gpu-0-mig-2g10gb-")


@pytest.mark.usefixtures("scheduler", "nvidias_classes")
def test_serves_a_claim_for_nvidias_driver_as_it_is(server: ApiServer, namespace: str) -> None:
    """The forms of its examples: a whole GPU by product, index and memory; MIG of one GPU."""
    memory = "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('30Gi')) >= 0"
    product = f"{NVIDIA}.productName.lowerAscii().matches('^.*a100.*$') && {NVIDIA}.index == 1"
    by_request = devices(server, namespace, "", request("gpu", "gpu.nvidia.com", product, memory))
    assert by_request == {"gpu": "gpu-1"}


@pytest.mark.usefixtures("scheduler", "nvidias_classes")
def test_serves_mig_devices_of_one_gpu_for_nvidias_driver(
    server: ApiServer, namespace: str
) -> None:
    by_request = devices(
        server,
        namespace,
        "gpu.nvidia.com/parentUUID",
        *(
            request(name, "mig.nvidia.com", f"{NVIDIA}.profile == '{profile}'")
            for name, profile in (("a", "1g.5gb"), ("b", "1g.5gb"), ("c", "3g.20gb"))
        ),
    )
    assert {name.partition("-mig-")[0] for name in by_request.values()} == {"gpu-0"}
    assert by_request["c"].startswith("gpu-0-mig-3g20gb-")


@pytest.mark.usefixtures("scheduler")
def test_selects_a_product_by_nvidias_name(server: ApiServer, namespace: str) -> None:
    product = f"{NVIDIA}.productName.lowerAscii().matches('^.*a100.*$')"
    driver = f"{NVIDIA}.driverVersion.compareTo(semver('550.0.0')) >= 0"
    by_request = devices(server, namespace, "", request("gpu", "divvy-gpu", product, driver))
    assert by_request == {"gpu": "gpu-0"}
