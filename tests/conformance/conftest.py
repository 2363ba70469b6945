"""The scene of a lab test: Divvy deployed, and the image with the workloads."""

from pathlib import Path

import pytest

from conformance.image import build_and_push
from tests.conformance.scene import Scene
from tests.deployment import Deployment


@pytest.fixture(scope="session")
def workloads(deployed: Deployment) -> str:
    image = deployed.cluster["plugin"]["image"]
    return build_and_push(image["registry"], image["base"])


@pytest.fixture
def scene(deployed: Deployment, workloads: str, tmp_path: Path) -> Scene:
    # Namespaces of tests before take some seconds to go, and nodes to be Ready after a restart.
    deployed.until(lambda: not deployed.held() and not deployed.tainted(), 90)
    return Scene(deployed, workloads, tmp_path)
