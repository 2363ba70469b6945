"""What pods ask by size is what the stock scheduler allocates: classes, policies and templates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.claim_templates.conftest import MakerProcess
from tests.claim_templates.stock_scheduler import make_node, running_scheduler
from tests.claim_templates.test_maker_on_api_server import claims, create
from tests.render.objects.claims.api_server import (
    CORES,
    GPU,
    MEMORY,
    NO,
    PERCENTAGE,
    ApiServer,
    pod,
)

pytestmark = pytest.mark.lab
NODE = "claims-node"


@pytest.fixture
def scheduler(server: ApiServer, tmp_path: Path) -> Iterator[None]:
    """Run the stock scheduler, with a node of two A100 and one T4, all of them free."""
    make_node(server, NODE)
    server.apply(
        share_slice(
            *(share(f"a100-{n}", "nvidia-a100-sxm4-40gb", 40960) for n in range(2)),
            share("t4-0", "tesla-t4", 15360),
        )
    )
    with running_scheduler(server, tmp_path):
        yield
    server.send("DELETE", f"/apis/resource.k8s.io/v1/resourceslices/{NODE}")
    server.send("DELETE", f"/api/v1/nodes/{NODE}")


def share(name: str, type_: str, memory_mib: int) -> dict[str, Any]:
    memory, step = f"{memory_mib}Mi", "1Mi"
    sizes = {"default": memory, "validRange": {"min": step, "max": memory, "step": step}}
    times = {"default": "100", "validRange": {"min": "1", "max": "100", "step": "1"}}
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": {
            "kind": {"string": "share"},
            "whole": {"bool": True},
            "type": {"string": type_},
        },
        "capacity": {
            "memory": {"value": memory, "requestPolicy": sizes},
            "cores": {"value": "100", "requestPolicy": times},
        },
    }


def share_slice(*devices: dict[str, Any]) -> dict[str, Any]:
    pool = {"name": f"{NODE}/divvy", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": NODE},
        "spec": {"driver": "divvy.gpu", "nodeName": NODE, "pool": pool, "devices": list(devices)},
    }


def allocated(server: ApiServer, namespace: str, name: str) -> list[tuple[str, dict[str, str]]]:
    """Return device and size of everything that a pod's claims have been given, in order."""
    shares = []
    for claim in claims(server, namespace):
        owners = {owner["name"] for owner in claim["metadata"].get("ownerReferences", ())}
        if name in owners and "allocation" in claim.get("status", {}):
            for result in claim["status"]["allocation"]["devices"]["results"]:
                shares.append((result["device"], result["consumedCapacity"]))
    return sorted(shares, key=str)


@pytest.mark.usefixtures("scheduler")
def test_allocates_what_was_asked_for(
    server: ApiServer, maker: MakerProcess, namespace: str
) -> None:
    maker.start()
    create(server, namespace, "two", {GPU: 2, MEMORY: 3000, CORES: 30})
    server.until(lambda: len(allocated(server, namespace, "two")) == 2)
    two = allocated(server, namespace, "two")
    assert len({device for device, _ in two}) == 2
    assert [size for _, size in two] == [{"memory": "3000Mi", "cores": "30"}] * 2

    # A quarter of whichever GPU it is.
    body = pod({PERCENTAGE: 25}, namespace=namespace, annotations={NO: "A100"})
    body["metadata"]["name"] = "quarter"
    server.send("POST", f"/api/v1/namespaces/{namespace}/pods", body)
    server.until(lambda: len(allocated(server, namespace, "quarter")) == 1)
    assert allocated(server, namespace, "quarter") == [("t4-0", {"memory": "3840Mi", "cores": "1"})]

    # A whole GPU by its ordinary name: of the three only what is not shared, which is none.
    create(server, namespace, "whole", {GPU: 1})
    create(server, namespace, "large", {MEMORY: 37000, CORES: 70})
    server.until(lambda: len(allocated(server, namespace, "large")) == 1)
    ((device, size),) = allocated(server, namespace, "large")
    assert device.startswith("a100-")
    assert size == {"memory": "37000Mi", "cores": "70"}
    assert allocated(server, namespace, "whole") == []
    for name in ("two", "large"):
        server.send("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", gracePeriodSeconds="0")
    server.until(lambda: len(allocated(server, namespace, "whole")) == 1)
    ((device, size),) = allocated(server, namespace, "whole")
    assert size["cores"] == "100"
    assert size["memory"] == {"a": "40Gi", "t": "15Gi"}[device[0]]
