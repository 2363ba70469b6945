"""The scene of a lab test: Divvy deployed, and the image with the workloads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.image import build_and_push
from lab.cluster.simulated_driver import build
from lab.driver_clients.driver_root import DriverRoot
from tests.conformance.scene import Scene
from tests.deployment import Deployment


@pytest.fixture(scope="session")
def workloads(deployed: Deployment) -> str:
    image = deployed.cluster["plugin"]["image"]
    return build_and_push(image["registry"], image["base"], insecure=True)


@pytest.fixture(scope="session")
def quick_recovery(deployed: Deployment) -> Deployment:
    """Offer a GPU again soon after an error: longer than a kubelet's status period, no more."""
    deployed.cluster["health"] = {"recoverAfter": "12s"}
    deployed.up()
    return deployed


@pytest.fixture
def scene(quick_recovery: Deployment, workloads: str, tmp_path: Path) -> Scene:
    # Namespaces of tests before take some seconds to go, and nodes to be Ready after a restart.
    quick_recovery.until(lambda: not quick_recovery.held() and not quick_recovery.tainted(), 90)
    return Scene(quick_recovery, workloads, tmp_path)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverRoot]:
    root = DriverRoot(tmp_path / "root", build())
    try:
        yield root
    finally:
        root.stop()
