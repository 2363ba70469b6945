"""Kueue as a process beside an API server: its CRDs, its webhooks on loopback, no pods.

Of its integrations, Jobs and pods are served, in the namespaces with a label. Its certificates for
metrics have a fixed path: it runs in a mount namespace in which /etc has them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import yaml

from lab.cluster.certificates import create_authority
from lab.cluster.tools import KUEUE
from lab.fakes.ports import free_port
from tests.api_reader import ApiReader
from tests.bare_cluster import BareCluster
from tests.running_lab import RunningLab

MANAGED = {"kueue-of-tests": "true"}
_MOUNT = 'mount -t overlay overlay -o "lowerdir=$0:/etc" /etc && exec "$@"'
# What the webhooks of Jobs, pods and Kueue's own objects are for.
_GROUPS = ("", "batch", "kueue.x-k8s.io")


@contextlib.contextmanager
def running_kueue(
    cluster: RunningLab | BareCluster, configuration: Mapping[str, Any], folder: Path
) -> Iterator[ApiReader]:
    """Run it with this Configuration, and give a connection that knows its kinds of objects."""
    KUEUE.build()
    manifests = _module() / "config/components"
    kinds = f"--filename={manifests / 'crd/bases'}"
    cluster.kubectl("apply", "--server-side", kinds)
    cluster.kubectl("wait", "--for=condition=Established", kinds)
    webhook, health = free_port(), free_port()
    authority = create_authority(folder)
    for certificates in (folder, folder / "etc/kueue/metrics/certs"):
        certificates.mkdir(parents=True, exist_ok=True)
        authority.issue(certificates, "tls", "kueue", hosts=["127.0.0.1"])
    config = folder / "configuration.yaml"
    config.write_text(yaml.safe_dump(_configuration(configuration, webhook, health, str(folder))))
    command = [str(KUEUE.bin / "kueue"), f"--config={config}"]
    command.append(f"--kubeconfig={cluster.kubeconfig}")
    contained = ["unshare", "--mount", "sh", "-c", _MOUNT, str(folder / "etc")]
    log = folder / "kueue.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *contained, *command], stdout=output, stderr=output
        )
    webhooks = _webhooks(manifests, webhook, (folder / "ca.crt").read_bytes())
    try:
        deadline = time.monotonic() + 60
        while not _is_ready(health):
            assert process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.2)
        cluster.kubectl("apply", "--server-side", "--filename=-", stdin=webhooks)
        with contextlib.closing(ApiReader(cluster.kubeconfig)) as api:
            yield api
    finally:
        # Its finalizers are its own to remove: what is left of its objects goes while it runs.
        cluster.kubectl("delete", kinds)
        cluster.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=webhooks)
        process.kill()
        process.wait()


def refusal(api: ApiReader, namespace: str, name: str) -> str:
    """Return why Kueue does not admit a Job or pod, "" while it does not say."""
    for workload in api.get("workloads.kueue.x-k8s.io", f"-n={namespace}")["items"]:
        owners = {owner["name"] for owner in workload["metadata"].get("ownerReferences", ())}
        for condition in workload.get("status", {}).get("conditions", ()):
            if name in owners and condition["type"] == "QuotaReserved":
                return str(condition["message"]) if condition["status"] == "False" else ""
    return ""


def _module() -> Path:
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"]
    done = subprocess.run(command, cwd=KUEUE.module, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def _configuration(
    configuration: Mapping[str, Any], webhook: int, health: int, certificates: str
) -> dict[str, Any]:
    gates = {"VisibilityOnDemand": False, **configuration.get("featureGates", {})}
    return {
        **configuration,
        "featureGates": gates,
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": certificates},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
    }


def _webhooks(manifests: Path, port: int, authority: bytes) -> str:
    """Return Kueue's webhooks as a List, of the namespaces of tests alone."""
    listed = list(yaml.safe_load_all((manifests / "webhook/manifests.yaml").read_text()))
    for item in listed:
        item["metadata"]["name"] = f"kueue-{item['metadata']['name']}"
        item["webhooks"] = [
            {
                **entry,
                "clientConfig": {
                    "url": f"https://127.0.0.1:{port}{entry['clientConfig']['service']['path']}",
                    "caBundle": base64.b64encode(authority).decode(),
                },
                "namespaceSelector": {"matchLabels": MANAGED},
            }
            for entry in item["webhooks"]
            if all(group in _GROUPS for rule in entry["rules"] for group in rule["apiGroups"])
        ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": listed})


def _is_ready(port: int) -> bool:
    try:
        # It is on this machine: no proxy is on the way.
        return httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).is_success
    except httpx2.HTTPError:
        return False
