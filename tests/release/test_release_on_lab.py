"""What `make dist` makes, published and installed on a cluster by the commands of release.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from divvy.model.api_names import OWNED_LABELS, STATUS_ANNOTATION
from divvy.version_info import version
from lab.cluster import registry
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import HELM, KUBERNETES
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab
NAMESPACE = "divvy-system"
POOL = "divvy.gpu/pool"
# What the page says that a registry without TLS needs, and a driver container.
WITHOUT_TLS = {
    "skopeo copy": "skopeo copy --dest-tls-verify=false",
    "skopeo inspect": "skopeo inspect --tls-verify=false",
    "helm push": "helm push --plain-http",
    "helm install": "helm install --plain-http --wait --set driver.root=/run/nvidia/driver",
}


@pytest.fixture(scope="module")
def node(lab: RunningLab) -> str:
    """Give the name of a node with whole GPUs."""
    return next(candidate.name for candidate in lab.description.nodes if candidate.gpus)


@pytest.fixture
def folder(lab: RunningLab, node: str, tmp_path: Path) -> Iterator[Path]:
    """Give a folder whose dist/ was made of the last commit; leave nothing on the lab."""
    base = registry.reference(lab.description, "base")
    release = (sys.executable, "-m", "release", "--base", base, "--out", tmp_path / "dist")
    subprocess.run(release, cwd=REPOSITORY, check=True, timeout=300)
    yield tmp_path
    lab.kubectl("label", "node", node, f"{POOL}-")
    run(lab, f"helm uninstall divvy -n {NAMESPACE} --ignore-not-found --wait", tmp_path)
    lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
    lab.kubectl("annotate", "node", node, f"{STATUS_ANNOTATION}-")
    labels = lab.get("node", node)["metadata"]["labels"]
    lab.kubectl(
        "label", "node", node, *(f"{key}-" for key in labels if re.fullmatch(OWNED_LABELS, key))
    )


def run(lab: RunningLab, command: str, folder: Path) -> str:
    """Run a line as a user of the lab types it."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "HOME": str(folder),
            "KUBECONFIG": str(lab.kubeconfig),
            "PATH": f"{HELM.bin}:{KUBERNETES.bin}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands(title: str) -> list[str]:
    """Return the commands of a section of the page that publish or install."""
    text = (REPOSITORY / "docs/release.md").read_text()
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines]


def test_publishes_and_installs_by_the_commands_of_the_page(
    lab: RunningLab, node: str, folder: Path
) -> None:
    digest = ""
    for line in (*commands("To publish"), *commands("To install the chart of a release")):
        command = line.replace("registry.example", registry.address(lab.description))
        command = command.replace("sha256:…", digest).replace("NODE", node)
        command = re.sub(
            "|".join(WITHOUT_TLS), lambda match: WITHOUT_TLS[match.group()], command, count=1
        )
        output = run(lab, command, folder)
        if "inspect" in command:
            digest = output.strip()
    assert digest.startswith("sha256:")
    gpus = lab.description.node(node).gpus
    assert gpus is not None
    lab.until(lambda: offered(lab, node) == gpus.count, 60)
    (pod,) = lab.get("pods", f"--namespace={NAMESPACE}")["items"]
    assert pod["spec"]["containers"][0]["image"].endswith(digest)
    notes = run(lab, f"helm list -n {NAMESPACE} --output yaml", folder)
    assert f"app_version: {version()}" in notes


def offered(lab: RunningLab, node: str) -> int:
    """Return how many whole GPUs a node advertises."""
    return int(lab.get("node", node)["status"]["allocatable"].get("nvidia.com/gpu", 0))
