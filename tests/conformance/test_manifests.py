"""The manifests that people apply by hand do on the lab what their first line says."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conformance.scene import Scene

pytestmark = [pytest.mark.lab, pytest.mark.timeout(180)]
MANIFESTS = Path(__file__).resolve().parents[2] / "conformance/workloads/manifests"
# What each manifest's pods say when they have done their work.
SAYS = {
    "pod-whole-gpu.yaml": (1, "Test PASSED"),
    "replicaset-shared.yaml": (4, "Test PASSED"),
    "pod-training.yaml": (1, "the same again: equal"),
    "replicaset-mig.yaml": (2, "GPU 0: OK"),
}


def test_tries_every_manifest() -> None:
    assert {path.name for path in MANIFESTS.glob("*.yaml")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_documents_manifests_that_work_when_applied_by_hand(scene: Scene, name: str) -> None:
    lab = scene.deployed.lab
    manifest = yaml.safe_load((MANIFESTS / name).read_text())
    spec = manifest["spec"].get("template", manifest)["spec"]
    spec["containers"][0]["image"] = scene.image
    count, word = SAYS[name]
    with lab.namespace() as namespace:
        manifest["metadata"]["namespace"] = namespace
        lab.apply(manifest)

        def logs() -> list[str]:
            pods: list[dict[str, Any]] = lab.get("pods", f"--namespace={namespace}")["items"]
            names = [pod["metadata"]["name"] for pod in pods]
            return [lab.try_kubectl("logs", f"-n={namespace}", name).stdout for name in names]

        lab.until(lambda: sum(word in log for log in logs()) == count)
        if "mig" in name:
            uuids = {line for log in logs() for line in log.splitlines() if "MIG-" in line}
            assert len(uuids) == count, "each pod has a MIG device of its own"
