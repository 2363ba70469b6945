"""What pods try on the host through their GPU: nothing of the host's changes.

The lab has neither AppArmor nor SELinux, so nothing but Divvy stands in the way.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from divvy.image.build import push_context
from tests.agent.tenants import NODE, SHARED, events, phase, pod, run
from tests.deployment import Deployment
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300), pytest.mark.usefixtures("original")]
BASELINE = {"pod-security.kubernetes.io/enforce": "baseline"}
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SOCKET_FOLDER = "/run/nvidia-persistenced"

# Follows the loader-cache hook of a neighbour in the pod's PID namespace, and overwrites what it
# runs: the file behind /proc/PID/exe, opened while it runs and written when it has ended.
ATTACKER = r"""
[ -p /shared/ld.so.conf ] || mkfifo /shared/ld.so.conf
printf '#!/bin/sh\necho overwritten > /var/lib/divvy/overwritten\n' > /shared/payload
while :; do
  for each in /proc/[0-9]*; do
    words=$(tr '\0' ' ' 2>/dev/null < $each/cmdline) || continue
    case "$words" in
      ldconfig\ *|divvy-hook\ *) ;;
      *) continue ;;
    esac
    echo "saw ${words%% *}"
    [ -r "$each/exe" ] && exec 3<$each/exe || continue
    echo "opened what ${words%% *} runs: $(readlink $each/exe)"
    timeout 1 sh -c 'echo > /shared/ld.so.conf'
    until cat /shared/payload > /proc/self/fd/3; do sleep 1; done 2>/dev/null
    echo "overwrote it"
  done
done
"""


def escape(image: str, place: str) -> dict[str, Any]:
    """Return a pod whose sidecar attacks the hook of its GPU container."""
    escape_pod = pod("escape", SHARED)
    attacker = {
        "name": "attacker",
        "restartPolicy": "Always",
        "command": ["/bin/sh", "-c", ATTACKER],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "startupProbe": {
            "exec": {"command": ["test", "-s", "/shared/payload"]},
            "periodSeconds": 1,
        },
    }
    escape_pod["spec"] |= {
        "shareProcessNamespace": True,
        "volumes": [{"name": "shared", "emptyDir": {}}],
        "initContainers": [attacker],
    }
    (container,) = escape_pod["spec"]["containers"]
    container |= {"image": image, "volumeMounts": [{"name": "shared", "mountPath": place}]}
    return escape_pod


def installed(deployed: Deployment) -> str:
    """Return the digests of what the agent has installed on the node for containers."""
    return deployed.on_node(NODE, "sh", "-c", "cd /var/lib/divvy; sha256sum hook-*/*; ls")


@pytest.fixture
def hanging_image(deployed: Deployment, tmp_path: Path) -> str:
    """Push an image that makes ldconfig wait until it is ended."""
    (tmp_path / "Containerfile").write_text(
        "ARG BASE\nFROM ${BASE}\nRUN rm -f /etc/ld.so.conf && mkfifo /etc/ld.so.conf\n"
    )
    return push_context(
        tmp_path, deployed.registry, "divvy/hanging", deployed.base_image, insecure=True
    )


def attack(deployed: Deployment, namespace: str, escape_pod: dict[str, Any]) -> str:
    """Run an attack until the GPU container runs or is refused; return what it printed."""
    lab = deployed.lab
    for container in escape_pod["spec"]["initContainers"]:
        container["image"] = deployed.base_image
    run(deployed, namespace, escape_pod)

    def over() -> bool:
        (status,) = lab.get("pod", "escape", f"-n={namespace}")["status"].get(
            "containerStatuses", [{}]
        )
        state = status.get("state", {})
        refused = state.get("terminated", {}).get("reason") == "StartError"
        return "running" in state or refused

    deployed.until(over, 90)
    return lab.kubectl("logs", "escape", "--container=attacker", f"-n={namespace}")


def test_gives_no_access_to_the_hosts_ldconfig_by_a_volume_over_etc(deployed: Deployment) -> None:
    before = installed(deployed)
    with deployed.lab.namespace(BASELINE) as namespace:
        logs = attack(deployed, namespace, escape(deployed.base_image, "/etc"))
    assert "opened" not in logs
    assert installed(deployed) == before


def test_protects_a_hanging_hook_from_its_pod(deployed: Deployment, hanging_image: str) -> None:
    before = installed(deployed)
    with deployed.lab.namespace(BASELINE) as namespace:
        logs = attack(deployed, namespace, escape(hanging_image, "/shared"))
        (reason,) = {line for line in events(deployed, namespace, "Failed") if "divvy" in line}
    assert "divvy: loader cache: ldconfig did not end within 20 s" in reason
    assert {"saw ldconfig", "saw divvy-hook"} <= set(logs.splitlines())
    assert "opened" not in logs
    assert installed(deployed) == before


@contextmanager
def answering(lab: RunningLab, path: str) -> Iterator[None]:
    """Answer on a socket of the node's, as a daemon of the driver does."""
    script = (
        "import os, socket, sys\n"
        "own = socket.socket(socket.AF_UNIX); own.bind(sys.argv[1]); own.listen()\n"
        "os.chmod(sys.argv[1], 0o666); print('ready', flush=True)\n"
        "while True: own.accept()[0].sendall(b'answered')\n"
    )
    command = lab.machine(NODE).enter_command([sys.executable, "-c", script, path])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            server.kill()
            subprocess.run(lab.machine(NODE).enter_command(["rm", "-f", path]), check=True)


def test_serves_daemon_sockets_from_a_read_only_folder(deployed: Deployment) -> None:
    host = f"{deployed.cluster['driver']['root']}{SOCKET_FOLDER}"
    before = deployed.on_node(NODE, "ls", "-A", host)
    connect = (
        "import socket; own = socket.socket(socket.AF_UNIX); "
        f"own.connect('{SOCKET_FOLDER}/test'); print(own.recv(9).decode())"
    )
    script = (
        f"cd {SOCKET_FOLDER}; for each in 'echo > note' 'ln -s /etc/cron.d/x nvidia.pid' 'rm test' "
        "'mkdir folder' 'mv test other'; "
        'do sh -c "$each" 2>&1 && echo "did $each"; done; '
        f'python3 -c "{connect}"'
    )
    with (
        deployed.lab.namespace(BASELINE) as namespace,
        answering(deployed.lab, f"{host}/test"),
    ):
        sock = pod("sock", SHARED)
        sock["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", script]
        run(deployed, namespace, sock)
        deployed.until(lambda: phase(deployed, namespace, "sock") in ("Succeeded", "Failed"), 60)
        logs = deployed.lab.kubectl("logs", "sock", f"-n={namespace}")
    assert "did" not in logs
    assert logs.count("Read-only file system") == 5
    assert "answered" in logs.splitlines()
    assert deployed.on_node(NODE, "ls", "-A", host) == before


def test_gives_nothing_for_a_device_name_without_a_request(deployed: Deployment) -> None:
    uuid = deployed.on_node(NODE, "nvidia-smi", "-L").partition("UUID: ")[2].partition(")")[0]
    with deployed.lab.namespace(BASELINE) as namespace:
        named = pod("named", SHARED, "ls /dev; find / -xdev -name 'libcuda*'")
        named["metadata"]["annotations"] = {"cdi.k8s.io/x": f"divvy.gpu/gpu={uuid}"}
        (container,) = named["spec"]["containers"]
        del container["resources"]
        container["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
        run(deployed, namespace, named)
        deployed.until(lambda: phase(deployed, namespace, "named") == "Succeeded", 60)
        logs = deployed.lab.kubectl("logs", "named", f"-n={namespace}")
    assert "null" in logs
    assert "nvidia" not in logs
    assert "libcuda" not in logs


def test_works_with_the_fewest_rights_and_a_read_only_root(deployed: Deployment) -> None:
    with deployed.lab.namespace(RESTRICTED) as namespace:
        few = pod("few", SHARED, "nvidia-smi -L")
        few["spec"]["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        few["spec"]["containers"][0]["securityContext"] = {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        run(deployed, namespace, few)
        deployed.until(lambda: phase(deployed, namespace, "few") == "Succeeded", 60)
        assert "UUID: GPU-" in deployed.lab.kubectl("logs", "few", f"-n={namespace}")
