"""A lab goes from one Kubernetes to the next as an administrator would take it."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from lab.cluster.tools import KUBERNETES_VERSIONS, containerd, kubernetes
from lab.tests.cluster.conftest import SmallLab

pytestmark = pytest.mark.lab

OLD, NEW = KUBERNETES_VERSIONS["1.36"], KUBERNETES_VERSIONS["1.37"]
DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {kubernetes.io/hostname: cpu-1}
      containers:
      - name: main
        image: 10.126.0.1:15000/divvy/busybox:lab
        command: [sleep, infinity]
"""


def _choose(small_lab: SmallLab, release: str) -> None:
    chosen = f'  divvy:lab:\n    kubernetes: "{release}"\n'
    text = small_lab.description.read_text()
    for known in KUBERNETES_VERSIONS:
        text = text.replace(f'    kubernetes: "{known}"\n', "")
    small_lab.description.write_text(text.replace("  divvy:lab:\n", chosen))


def _kubelets(small_lab: SmallLab) -> dict[str, str]:
    nodes = json.loads(small_lab.kubectl("get", "nodes", "--output=json"))["items"]
    return {
        node["metadata"]["name"]: node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes
    }


def _server(small_lab: SmallLab) -> str:
    return str(json.loads(small_lab.kubectl("get", "--raw=/version"))["gitVersion"])


def _container(small_lab: SmallLab, pod: str) -> tuple[str, int]:
    path = "--output=jsonpath={.status.containerStatuses[0]}"
    status = json.loads(small_lab.kubectl("get", "pod", pod, path))
    return status["containerID"], status["restartCount"]


def _programs(small_lab: SmallLab) -> dict[str, Path]:
    """Return the program of each component of the control plane."""
    programs = {}
    for line in small_lab.divvy("status").stdout.splitlines():
        name, _, rest = line.partition(" ")
        if "runs, process" in rest:
            programs[name] = Path(f"/proc/{rest.rsplit(maxsplit=1)[1]}/exe").resolve()
    return programs


def _is_upgraded(small_lab: SmallLab) -> bool:
    programs = _programs(small_lab)
    return (
        _server(small_lab) == NEW
        and _kubelets(small_lab) == {"gpu-1": NEW, "cpu-1": NEW}
        and all(
            programs[name] == kubernetes("1.37").bin / name
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        )
        and small_lab.divvy("status").returncode == 0
        and small_lab.divvy("status").stdout.splitlines()[0].split() == ["Kubernetes", NEW]
    )


def test_keeps_pods_running_while_control_plane_and_nodes_are_upgraded(small_lab: SmallLab) -> None:
    _choose(small_lab, "1.36")
    small_lab.up()
    assert _server(small_lab) == OLD
    small_lab.pod_on("gpu-1", "stays")
    before = _container(small_lab, "stays")
    _choose(small_lab, "1.37")
    refused = small_lab.divvy("up")
    assert refused.stderr == (
        "error: the lab that is up has other versions than the description: "
        "run divvy lab upgrade, or divvy lab down first\n"
    )
    upgraded = small_lab.divvy("upgrade")
    assert upgraded.returncode == 0, upgraded.stderr
    lines = [line.split("s  ")[1] for line in upgraded.stdout.splitlines()]
    assert lines == [f"control plane is {NEW}", "node gpu-1 is Ready", "node cpu-1 is Ready"]
    assert _is_upgraded(small_lab)
    assert _container(small_lab, "stays") == before
    small_lab.kubectl("exec", "stays", "--", "true")
    # What is restarted afterwards comes back upgraded.
    assert small_lab.divvy("restart", "cpu-1").returncode == 0
    assert _kubelets(small_lab)["cpu-1"] == NEW
    _choose(small_lab, "1.36")
    assert small_lab.divvy("upgrade").stderr == (
        "error: the lab runs Kubernetes 1.37, and Kubernetes cannot be taken back to 1.36: "
        "run divvy lab down first\n"
    )


def test_returns_pods_to_a_drained_node_after_its_upgrade(small_lab: SmallLab) -> None:
    _choose(small_lab, "1.36")
    small_lab.up()
    small_lab.kubectl("apply", "--filename=-", stdin=DEPLOYMENT)
    small_lab.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    before = small_lab.kubectl("get", "pods", "--output=name")
    _choose(small_lab, "1.37")
    upgraded = small_lab.divvy("upgrade", "--drain")
    assert upgraded.returncode == 0, upgraded.stderr
    assert _is_upgraded(small_lab)
    small_lab.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert small_lab.kubectl("get", "pods", "--output=name") != before


@pytest.mark.parametrize("after", [0.3, 3.0])
def test_resumes_a_killed_upgrade(small_lab: SmallLab, after: float) -> None:
    _choose(small_lab, "1.36")
    small_lab.up()
    _choose(small_lab, "1.37")
    command = small_lab.command("upgrade")
    with subprocess.Popen(command, env=small_lab.environment, stdout=subprocess.PIPE) as upgrade:
        while _described(small_lab) != "1.37":
            assert upgrade.poll() is None
            time.sleep(0.05)
        time.sleep(after)
        upgrade.send_signal(signal.SIGKILL)
    small_lab.up()
    shown = small_lab.divvy("status").stdout
    assert ("not upgraded yet" in shown) == (set(_kubelets(small_lab).values()) != {NEW}), shown
    upgraded = small_lab.divvy("upgrade")
    assert upgraded.returncode == 0, upgraded.stderr
    assert _is_upgraded(small_lab)


def test_keeps_pods_running_while_containerd_is_upgraded(small_lab: SmallLab) -> None:
    small_lab.up()
    small_lab.pod_on("gpu-1", "stays")
    before, shims = _container(small_lab, "stays"), _shims(small_lab)
    assert _runtimes(small_lab) == {"gpu-1": "2.3.7", "cpu-1": "2.3.7"}
    _describe(small_lab, "cdi: false", 'cdi: false, version: "2.4"')
    upgraded = small_lab.divvy("upgrade")
    assert upgraded.returncode == 0, upgraded.stderr
    assert _runtimes(small_lab) == {"gpu-1": "2.4.2", "cpu-1": "2.3.7"}
    assert _container(small_lab, "stays") == before
    small_lab.kubectl("exec", "stays", "--", "true")
    # A new pod has a shim of the new release, and the old pod keeps its own.
    small_lab.pod_on("gpu-1", "starts")
    assert _shims(small_lab) == shims | {containerd("2.4").bin / "containerd-shim-runc-v2"}
    _describe(small_lab, 'version: "2.4"', 'version: "2.3"')
    assert small_lab.divvy("upgrade").stderr == (
        "error: node gpu-1 runs containerd 2.4, and containerd cannot be taken back to 2.3: "
        "run divvy lab down first\n"
    )


def test_boots_a_node_into_its_new_driver(small_lab: SmallLab) -> None:
    small_lab.up()
    small_lab.pod_on("cpu-1", "stays")
    before = _container(small_lab, "stays")
    assert _driver(small_lab) == "550.163.01"
    _describe(small_lab, "model: T4", "model: T4\n        driverVersion: 580.65.06")
    upgraded = small_lab.divvy("upgrade")
    assert upgraded.returncode == 0, upgraded.stderr
    assert _driver(small_lab) == "580.65.06"
    assert _container(small_lab, "stays") == before
    assert small_lab.divvy("status").returncode == 0
    # A driver can be taken back.
    _describe(small_lab, "580.65.06", "550.163.01")
    assert small_lab.divvy("upgrade").returncode == 0
    assert _driver(small_lab) == "550.163.01"


def test_refuses_to_upgrade_what_has_no_version(small_lab: SmallLab) -> None:
    small_lab.up()
    _describe(small_lab, "count: 2", "count: 1")
    assert small_lab.divvy("upgrade").stderr == (
        "error: the lab that is up has other nodes than the description, and an upgrade changes "
        "the versions of Kubernetes, containerd and drivers alone\n"
    )


def _describe(small_lab: SmallLab, old: str, new: str) -> None:
    text = small_lab.description.read_text()
    assert old in text
    small_lab.description.write_text(text.replace(old, new))


def _runtimes(small_lab: SmallLab) -> dict[str, str]:
    nodes = json.loads(small_lab.kubectl("get", "nodes", "--output=json"))["items"]
    return {
        node["metadata"]["name"]: node["status"]["nodeInfo"][
            "containerRuntimeVersion"
        ].removeprefix("containerd://")
        for node in nodes
    }


def _driver(small_lab: SmallLab) -> str:
    query = ("nvidia-smi", "--id=0", "--query-gpu=driver_version", "--format=csv,noheader")
    return small_lab.divvy("exec", "gpu-1", "--", *query).stdout.strip()


def _shims(small_lab: SmallLab) -> set[Path]:
    """Return the shims' programs of all pods on gpu-1."""
    looks = small_lab.divvy("exec", "gpu-1", "--", "sh", "-c", "readlink /proc/[0-9]*/exe").stdout
    return {Path(line) for line in looks.splitlines() if line.endswith("/containerd-shim-runc-v2")}


def _described(small_lab: SmallLab) -> str:
    kept = Path(f"/var/lib/divvy-{small_lab.environment['DIVVY_LAB']}/description.json")
    return str(json.loads(kept.read_text())["kubernetes"])
